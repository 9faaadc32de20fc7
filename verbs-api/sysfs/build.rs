//! Sets the name of the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liburxe_sysfs.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
