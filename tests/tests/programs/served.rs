//! Programs that `urxe run` serves although they differ from ordinary ones: sanitized programs,
//! programs with preloaded libraries of the user, programs that bring another libibverbs, and
//! installations in folders with special characters. Also the note at the end of a run that opened
//! no device.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::install::{compile_as, install, is_root, ok, text_of};
use crate::pair::exclusive;

const LINK: &str = "--link rxe0=127.79.2.1";
/// The output of `tests/programs/sanitized.c`.
const SERVED: &str = "1 devices, state 4: ACTIVE, opened\n";
const NOTE: &str = "urxe: note: a program of this run loaded libibverbs, and none opened a device";

/// Compiles the program with another compiler and these options, or says why not.
fn compiled_by(compiler: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    let program = install().path(&format!("bin/{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/sanitized.c");
    let mut command = Command::new(compiler);
    command.args(["-g", "-O1", "-o"]).arg(&program).arg(source).arg("-libverbs").args(options);
    let made = command.output();
    if !made.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {compiler} {options:?} is not installed or has no such runtime");
        return None;
    }
    Some(program)
}

/// Runs the program, which must open a device.
#[track_caller]
fn served(run: &mut Command) {
    let output = run.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), SERVED, "{}", text_of(&output));
}

/// Checks that a sanitized program and its children are served, and that the sanitizer finds a
/// fault.
#[track_caller]
fn serves_and_finds(program: &Path, fault: &str) {
    let _exclusive = exclusive();
    let program = program.display();
    served(&mut install().run(&format!("{LINK} -- {program}")));
    let mut child = install().run(&format!("{LINK} -- sh -c"));
    served(child.arg(format!("{program}; exit $?")));
    let found = install().run(&format!("{LINK} -- {program} fault")).output().unwrap();
    let text = text_of(&found);
    assert!(!found.status.success() && text.contains(fault), "{program}: {text}");
}

#[test]
fn address_sanitizer_of_gcc() {
    let program = compiled_by("gcc", "gcc-asan", &["-fsanitize=address"]).expect("gcc has it");
    serves_and_finds(&program, "heap-use-after-free");
    // The runtime would end the program without the option that `urxe run` sets.
    let mut strict = install().run(&format!("{LINK} -- {}", program.display()));
    let strict = strict.env("ASAN_OPTIONS", "verify_asan_link_order=1").output().unwrap();
    let text = text_of(&strict);
    assert!(!strict.status.success() && text.contains("does not come first"), "{text}");
    let mut user = install().run(&format!("{LINK} -- {} leak", program.display()));
    assert!(!user.output().unwrap().status.success(), "leaks are found");
    ok(user.env("ASAN_OPTIONS", "detect_leaks=0"));
    let library = ok(Command::new("gcc").arg("-print-file-name=libasan.so"));
    let script = "print(open('/sys/class/infiniband/rxe0/ports/1/state').read())";
    let mut python = install().run(&format!("{LINK} -- python3 -c"));
    python.arg(script).env("LD_PRELOAD", library.trim()).env("ASAN_OPTIONS", "detect_leaks=0");
    assert_eq!(ok(&mut python), "4: ACTIVE\n\n");
}

#[test]
fn thread_sanitizer_of_gcc() {
    let program = compiled_by("gcc", "gcc-tsan", &["-fsanitize=thread"]).expect("gcc has it");
    serves_and_finds(&program, "heap-use-after-free");
}

#[test]
fn sanitizers_of_clang() {
    for (name, options) in [
        ("clang-asan", &["-fsanitize=address"][..]),
        ("clang-asan-shared", &["-fsanitize=address", "-shared-libasan"]),
        ("clang-tsan", &["-fsanitize=thread"]),
    ] {
        for compiler in ["clang", "clang-14", "clang-19"] {
            let folder = Command::new(compiler).arg("-print-resource-dir").output();
            let Ok(folder) = folder else { continue };
            let folder = String::from_utf8(folder.stdout).unwrap();
            let path = format!("-Wl,-rpath,{}/lib/linux", folder.trim());
            let options: Vec<&str> = options.iter().copied().chain([&*path]).collect();
            if let Some(program) = compiled_by(compiler, name, &options) {
                serves_and_finds(&program, "heap-use-after-free");
                break;
            }
        }
    }
}

#[test]
fn an_allocator_that_the_user_preloads_stays_and_comes_first() {
    let program = compile_as("sanitized", "bin/plain", &["-libverbs"]);
    let jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    let library = if Path::new(jemalloc).exists() { jemalloc } else { "libm.so.6" };
    let mut run = install().run(&format!("{LINK} -- {}", program.display()));
    served(run.env("LD_PRELOAD", library));
    let mut variable = install().run("-- sh -c");
    let value = ok(variable.arg("echo $LD_PRELOAD").env("LD_PRELOAD", library));
    let libraries: Vec<&str> = value.trim().split(':').collect();
    assert_eq!((libraries.len(), libraries[0]), (3, library), "{value}");
    // An inner run adds nothing.
    let urxe = install().path("bin/urxe");
    let mut inner = install().run(&format!("-- {} run -- sh -c", urxe.display()));
    assert_eq!(ok(inner.arg("echo $LD_PRELOAD").env("LD_PRELOAD", library)), value);
    let mut none = install().run(&format!("-- {} run --no-preload -- sh -c", urxe.display()));
    let text = ok(none.arg("echo $LD_PRELOAD,$URXE_SYSFS").env("LD_PRELOAD", library));
    assert_eq!(text, format!("{library},\n"));
}

#[test]
fn programs_under_valgrind() {
    let program = compile_as("sanitized", "bin/plain-valgrind", &["-libverbs"]);
    // Another address, because valgrind answers the other processes of an address late.
    let link = "--link rxe0=127.79.2.9";
    let valgrind = format!("{link} -- valgrind -q --error-exitcode=9 {}", program.display());
    let _exclusive = exclusive();
    served(&mut install().run(&valgrind));
}

/// Returns a folder with a program that needs another libibverbs, by `NEEDED` and in a module that
/// the program loads as Python does. The other library has no device.
fn wheel(name: &str, soname: &str, path: &str) -> PathBuf {
    let folder = install().path(name);
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let write = |file: &str, text: &str| fs::write(folder.join(file), text).unwrap();
    write("other.map", "IBVERBS_1.0 { local: *; };\nIBVERBS_1.1 { global: ibv_get_device_list; };");
    write(
        "other.c",
        "void *ibv_get_device_list(int *n) { static void *none; *n = 0; return &none; }",
    );
    write(
        "module.c",
        "void *ibv_get_device_list(int *);\nint count(void) { int n; ibv_get_device_list(&n); \
         return n; }",
    );
    write(
        "program.c",
        "#include <dlfcn.h>\n#include <stdio.h>\nint count(void);\n\
         int main(int argc, char **argv) {\n\
         void *module = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);\n\
         if (!module) { puts(dlerror()); return 1; }\n\
         int (*again)(void) = (int (*)(void))dlsym(module, \"count\");\n\
         printf(\"%d %d\\n\", count(), again()); return 0; }",
    );
    let gcc = |words: &str| {
        let mut gcc = Command::new("gcc");
        ok(gcc.current_dir(&folder).args(words.split(' ')));
    };
    gcc(&format!(
        "-shared -fPIC -o {soname} -Wl,-soname,{soname} -Wl,--version-script=other.map other.c"
    ));
    for module in ["libmodule.so", "libsecond.so"] {
        gcc(&format!("-shared -fPIC -o {module} module.c {soname} {path}"));
    }
    gcc(&format!("-o program program.c libmodule.so {path}"));
    folder
}

#[test]
fn a_libibverbs_of_another_name_or_path_is_not_used() {
    // As auditwheel names and finds libraries, and as older build systems do.
    for (name, soname, path) in [
        ("wheel", "libibverbs-1de1263b.so.1.14.48.0", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"),
        ("rpath", "libibverbs.so.1", "-Wl,--disable-new-dtags,-rpath,$ORIGIN"),
    ] {
        let folder = wheel(name, soname, path);
        let [program, module] = ["program", "libsecond.so"].map(|file| folder.join(file));
        let words = format!("{} {}", program.display(), module.display());
        assert_eq!(ok(&mut install().run(&format!("{LINK} -- {words}"))), "1 1\n", "{name}");
        let mut child = install().run(&format!("{LINK} -- sh -c"));
        assert_eq!(ok(child.arg(format!("{words}; exit $?"))), "1 1\n", "{name}");
        // Without the preload, the loader takes the other library.
        let alone = ok(install().user(&program).arg(&module));
        assert_eq!(alone, "0 0\n", "{name}");
    }
    let program = install().path("wheel/program");
    let module = install().path("wheel/libsecond.so");
    let words = format!("--no-preload -- {} {}", program.display(), module.display());
    assert_eq!(ok(&mut install().run(&words)), "0 0\n");
}

#[test]
fn folders_with_blanks_and_colons_in_their_names() {
    let place = install().path("my urxe: 1;2 $LIB");
    for (from, to) in [
        ("bin/urxe", "bin/urxe"),
        ("lib/liburxe.so", "lib/liburxe.so"),
        ("lib/liburxe_sysfs.so", "lib/liburxe_sysfs.so"),
    ] {
        let to = place.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(install().path(from), &to).unwrap();
    }
    let home = install().path("home/my home: 1");
    fs::create_dir_all(&home).unwrap();
    if is_root() {
        let user = crate::install::NOBODY;
        std::os::unix::fs::chown(&home, Some(user.0), Some(user.1)).unwrap();
    }
    let run = || {
        let mut run = install().user(place.join("bin/urxe"));
        run.current_dir(&home).args(["run", "--link", "rxe0=127.79.2.2", "--"]);
        run
    };
    for cache in [home.as_path(), &install().path("home"), Path::new("/nonexistent")] {
        let mut sh = run();
        sh.args(["sh", "-c", "ibv_devinfo && cat /sys/class/infiniband/rxe0/ports/1/state"]);
        let text = ok(sh.env("HOME", cache));
        assert!(text.contains("hca_id:\trxe0") && text.ends_with("4: ACTIVE\n"), "{text}");
    }
    assert!(!Path::new("/nonexistent").exists(), "a home folder was created");
    // As in a container without a user.
    assert!(ok(run().arg("ibv_devices").env_remove("HOME")).contains("rxe0"));
}

#[test]
fn the_process_of_a_run_is_the_program() {
    let mut command = install().run("-- sh -c");
    let child = command.arg("echo $$; kill -TERM $$").stdout(std::process::Stdio::piped());
    let child = child.spawn().unwrap();
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{id}\n"));
    assert_eq!(output.status.signal(), Some(15));
}

/// A program that lists the devices and opens none.
fn lister() -> &'static Path {
    static LISTER: OnceLock<PathBuf> = OnceLock::new();
    LISTER.get_or_init(|| compile_as("sanitized", "bin/lister", &["-libverbs"]))
}

#[test]
fn a_run_that_opened_no_device_says_so_once() {
    let list = format!("{} list", lister().display());
    let says = |words: &str, command: &str| {
        let mut run = install().run(&format!("{LINK} {words}"));
        let output = run.args(["--", "sh", "-c", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{}", text_of(&output));
        String::from_utf8(output.stderr).unwrap().matches(NOTE).count()
    };
    // dash ends by _exit.
    assert_eq!(says("", &format!("{list}; {list}; exit 7")), 1);
    // Another process of the run opens one.
    assert_eq!(says("", &format!("{list}; ibv_devinfo; exit 7")), 0);
    // No program of the run knows verbs.
    assert_eq!(says("", "true; exit 7"), 0);
    // Standard error became another file.
    assert_eq!(says("", &format!("{list}; exec 2>&1; exit 7")), 0);
    for off in ["--no-report", "--no-sysfs", "--no-preload"] {
        assert_eq!(says(off, &format!("{list}; exit 7")), 0, "{off}");
    }
    let alone = |words: &str| {
        let output = install().run(&format!("{LINK} -- {words}")).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(alone(&list).contains(NOTE), "a program that ends by exit");
    assert!(alone("ib_write_bw --version").contains(NOTE), "a program that calls no verb");
    assert_eq!(alone("ibv_devices"), "", "the purpose of this program");
    assert_eq!(alone("ibv_devinfo"), "");
    let fork = format!("import os; os.system('{list}'); os.fork() or os._exit(0); os.wait()");
    let mut python = install().run(&format!("{LINK} -- python3 -c"));
    let text = text_of(&python.arg(fork).output().unwrap());
    assert_eq!(text.matches(NOTE).count(), 1, "{text}");
}
