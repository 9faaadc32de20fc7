//! The order of the sources, and changes of the file.

use std::os::unix::ffi::OsStrExt;

use super::*;
use crate::link::spec::ParseReason;

fn link(text: &str) -> LinkSpec {
    text.parse().unwrap()
}

fn name(text: &str) -> LinkName {
    text.parse().unwrap()
}

/// A path of a file that does not exist yet, two folders deep.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(text: &str) -> Self {
        let place = Self::new();
        fs::create_dir(place.0.path().join("urxe")).unwrap();
        fs::write(place.path(), text).unwrap();
        place
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("urxe").join("links")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }
}

#[test]
fn the_environment_comes_first() {
    let place = Place::with("rxe5 = eth0\n");
    let environment = OsStr::new("rxe0=10.0.0.1,rxe1=eth0");
    let found = configured_from(Some(environment), Some(&place.path())).unwrap();
    assert_eq!(found.origin, Origin::Environment);
    assert_eq!(found.links, [link("rxe0=10.0.0.1"), link("rxe1=eth0")]);
}

#[test]
fn then_the_file_then_the_built_in() {
    let place = Place::with("rxe5 = eth0\n");
    let found = configured_from(Some(OsStr::new(" ")), Some(&place.path())).unwrap();
    assert_eq!(
        found,
        Configured { origin: Origin::File(place.path()), links: vec![link("rxe5=eth0")] }
    );

    let empty = Place::with("# nothing\n");
    for file in [Some(empty.path()), Some(Place::new().path()), None] {
        let found = configured_from(None, file.as_deref()).unwrap();
        assert_eq!(
            found,
            Configured { origin: Origin::BuiltIn, links: vec![link("rxe0=127.0.0.1")] }
        );
    }
}

#[test]
fn a_mistake_is_no_reason_to_take_the_next() {
    let place = Place::with("rxe5 = eth0\n");
    let error = configured_from(Some(OsStr::new("rxe0")), Some(&place.path())).unwrap_err();
    assert!(matches!(&error, LinkError::Parse { origin: Origin::Environment, .. }), "{error}");
    assert!(error.to_string().starts_with("URXE_DEVICES: line 1, column 1: "), "{error}");

    let bytes = OsStr::from_bytes(b"rxe0=\xff");
    assert!(matches!(configured_from(Some(bytes), None), Err(LinkError::EnvironmentNotText)));

    let wrong = Place::with("rxe0 = eth0\nrxe1 10.0.0.1\n");
    match configured_from(None, Some(&wrong.path())).unwrap_err() {
        LinkError::Parse { origin: Origin::File(path), error } => {
            assert_eq!((path, error.line, error.column), (wrong.path(), 2, 1));
            assert!(matches!(error.reason, ParseReason::NoEquals { .. }));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let place = Place::new();
    fs::create_dir_all(place.path()).unwrap();
    assert!(matches!(
        configured_from(None, Some(&place.path())),
        Err(LinkError::ReadConfig { .. })
    ));
}

#[test]
fn where_the_file_is() {
    let path = |xdg: Option<&str>, home: Option<&str>| {
        file_path_from(xdg.map(OsStr::new), home.map(OsStr::new))
    };
    assert_eq!(path(Some("/x"), Some("/home/a")).unwrap(), Path::new("/x/urxe/links"));
    assert_eq!(path(None, Some("/home/a")).unwrap(), Path::new("/home/a/.config/urxe/links"));
    assert_eq!(
        path(Some("relative"), Some("/home/a")).unwrap(),
        Path::new("/home/a/.config/urxe/links")
    );
    assert!(matches!(path(Some(""), None), Err(LinkError::NoHome)));
}

#[test]
fn links_come_and_go_and_the_rest_stays() {
    let place = Place::with("# lab\nrxe0=10.0.0.1   # first\n\n#rxe7 = eth7");
    add(&place.path(), &link("rxe1=eth0")).unwrap();
    assert_eq!(place.text(), "# lab\nrxe0=10.0.0.1   # first\n\n#rxe7 = eth7\nrxe1 = eth0\n");

    let taken = add(&place.path(), &link("rxe0=eth1")).unwrap_err();
    let path = place.path();
    let expected = format!(
        "link rxe0 exists already in {}, on 10.0.0.1; delete it first (urxe link del rxe0)",
        path.display()
    );
    assert_eq!(taken.to_string(), expected);

    remove(&place.path(), &name("rxe0")).unwrap();
    assert_eq!(place.text(), "# lab\n\n#rxe7 = eth7\nrxe1 = eth0\n");
    let missing = remove(&place.path(), &name("rxe0")).unwrap_err();
    let expected = format!("no link rxe0 in {}; there are: rxe1", path.display());
    assert_eq!(missing.to_string(), expected);

    remove(&place.path(), &name("rxe1")).unwrap();
    assert!(matches!(remove(&place.path(), &name("rxe0")), Err(LinkError::BuiltIn { .. })));
    let left = fs::read_dir(place.path().parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "no temporary file stays");
}

#[test]
fn the_first_link_makes_the_file() {
    let place = Place::new();
    add(&place.path(), &link("rxe0=10.0.0.1")).unwrap();
    assert_eq!(place.text(), format!("{HEADER}rxe0 = 10.0.0.1\n"));
    assert_eq!(configured_from(None, Some(&place.path())).unwrap().links, [link("rxe0=10.0.0.1")]);
}

#[test]
fn a_file_with_a_mistake_is_not_rewritten() {
    let text = "rxe0\n";
    let place = Place::with(text);
    assert!(matches!(add(&place.path(), &link("rxe1=eth0")), Err(LinkError::Parse { .. })));
    assert!(matches!(remove(&place.path(), &name("rxe1")), Err(LinkError::Parse { .. })));
    assert_eq!(place.text(), text);
}

#[test]
fn a_symbolic_link_stays_one() {
    let place = Place::with("");
    let real = place.0.path().join("dotfiles");
    fs::rename(place.path(), &real).unwrap();
    std::os::unix::fs::symlink(&real, place.path()).unwrap();
    add(&place.path(), &link("rxe0=eth0")).unwrap();
    assert!(fs::symlink_metadata(place.path()).unwrap().is_symlink());
    assert!(fs::read_to_string(real).unwrap().ends_with("rxe0 = eth0\n"));
}

#[test]
fn writers_take_turns() {
    let place = Place::new();
    let path = &place.path();
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || add(path, &link(&format!("rxe{number}=eth{number}"))).unwrap());
        }
    });
    assert_eq!(configured_from(None, Some(path)).unwrap().links.len(), 8);
}
