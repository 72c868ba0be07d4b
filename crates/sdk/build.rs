//! Gives the library its name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librota.so.1");
    // It goes into other people's programs and wheels.
    older_glibc::link();
}
