//! Builds again when a migration is added: `sqlx::migrate!` reads the folder at compile time.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
