//! Compiles the C++ shim against libtorch's headers, and tells the programs where libtorch is.

use std::path::PathBuf;

const SOURCES: [&str; 7] = [
    "shim/memory.cpp",
    "shim/recorder.cpp",
    "shim/storage.cpp",
    "shim/autograd.cpp",
    "shim/arithmetic.cpp",
    "shim/collective.cpp",
    "shim/library.cpp",
];

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    let Some(libraries) = std::env::var_os("DEP_TCH_LIBTORCH_LIB").map(PathBuf::from) else {
        println!("cargo:warning=torch-sys found no libtorch. Run `make setup`.");
        std::process::exit(1);
    };
    let include = libraries.join("../include");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").warnings(true).extra_warnings(true).warnings_into_errors(true);
    // Headers of others: their warnings are not ours.
    for folder in [include.clone(), include.join("torch/csrc/api/include")] {
        build.flag("-isystem").flag(&folder);
    }
    build.include("shim").files(SOURCES).compile("loadmaster_shim");

    // Where libtorch was at build time, and beside an installed program.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libraries.display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
}
