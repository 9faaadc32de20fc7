//! The pages of section 7, each from sections of pages of docs.

use crate::markdown::{self, introduction, section};
use crate::page::Page;

const ENVIRONMENT: &str = include_str!("../../../docs/environment.md");
const FAULTS: &str = include_str!("../../../docs/faults.md");
const C_PROGRAMS: &str = include_str!("../../../docs/c-programs.md");

/// A page: its name, its line in NAME, its sections, and the pages of SEE ALSO.
struct Topic {
    name: &'static str,
    about: &'static str,
    sections: &'static [(&'static str, Part)],
    see_also: &'static str,
}

/// The origin of a section.
enum Part {
    /// The text before the first section of a page of docs.
    Introduction(&'static str),
    /// The section of a page of docs with this heading.
    Section(&'static str, &'static str),
}

use Part::{Introduction, Section};

const TOPICS: [Topic; 3] = [
    Topic {
        name: "urxe-environment",
        about: "environment variables of urxe and of programs over urxe",
        sections: &[
            ("DESCRIPTION", Introduction(ENVIRONMENT)),
            ("VARIABLES", Section(ENVIRONMENT, "Variables")),
            ("PRIVILEGED PROGRAMS", Section(ENVIRONMENT, "Privileged programs")),
        ],
        see_also: "urxe(1), urxe-run(1), urxe-env(1), urxe-faults(7), liburxe(7)",
    },
    Topic {
        name: "urxe-faults",
        about: "faults of received packets, which follow a seed",
        sections: &[
            ("DESCRIPTION", Section(ENVIRONMENT, "Faults")),
            ("EXAMPLES", Section(FAULTS, "Both directions")),
        ],
        see_also: "urxe-run(1), urxe-decode(1), urxe-environment(7)",
    },
    Topic {
        name: "liburxe",
        about: "libibverbs and librdmacm in userspace, with their differences",
        sections: &[
            ("DESCRIPTION", Introduction(C_PROGRAMS)),
            ("DIFFERENCES FROM RDMA-CORE", Section(C_PROGRAMS, "Differences from rdma-core")),
            ("DIFFERENCES FROM RDMA_RXE", Section(C_PROGRAMS, "Differences from rdma_rxe")),
            (
                "PROGRAMS THAT URXE CANNOT SERVE",
                Section(C_PROGRAMS, "Programs that urxe cannot serve"),
            ),
            ("VIEW OF SYSFS", Section(C_PROGRAMS, "Programs that read /sys/class/infiniband")),
            ("SYSTEM-WIDE USE", Section(C_PROGRAMS, "All programs of a machine")),
        ],
        see_also: "urxe(1), urxe-run(1), urxe-install(1), urxe-environment(7), rdma_cm(7)",
    },
];

/// Returns the pages.
pub fn pages() -> Vec<Page> {
    TOPICS.iter().map(page).collect()
}

fn page(topic: &Topic) -> Page {
    let mut page = Page::new(topic.name, 7, topic.about);
    for (heading, part) in topic.sections {
        let text = match part {
            Introduction(page) => introduction(page),
            Section(page, heading) => section(page, heading),
        };
        page.add(heading, &markdown::roff(text));
    }
    page.add("SEE ALSO", &markdown::roff(topic.see_also));
    page
}
