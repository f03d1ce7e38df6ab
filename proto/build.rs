//! Compiles `loadmaster/**/*.proto` without `protoc`.

use std::path::PathBuf;

use protox::prost_reflect::{DescriptorPool, MessageDescriptor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=loadmaster");
    println!("cargo:rerun-if-changed=google");

    let services = ["model", "cluster", "profile", "plan", "worker", "history", "server"]
        .map(|file| format!("loadmaster/v1/{file}.proto"))
        .into_iter()
        .chain(["loadmaster/worker/v1/session.proto".to_owned()]);
    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_source_info(true).include_imports(true).open_files(services)?;
    // Encoded from the pool, not from prost's types: these would drop the custom options (field
    // behaviour, resource names) that reflection clients read.
    let pool: DescriptorPool = compiler.descriptor_pool();
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), pool.encode_to_vec())?;
    std::fs::write(out.join("unary.rs"), unary(&pool))?;

    let descriptors = compiler.file_descriptor_set();
    let mut config = prost_build::Config::new();
    // `google.protobuf.Any` names its content's type.
    config.enable_type_names().type_name_domain(["."], "type.googleapis.com");
    // Few results are of links, and all messages to the planner would be as large as theirs.
    config.boxed(".loadmaster.worker.v1.RunResult.link_measurement");
    // A retried call is known by its bytes, and a hash map would be written in another order each time.
    config.btree_map([".loadmaster.v1.ClusterNode.labels"]);
    tonic_prost_build::configure()
        .include_file("wire.rs")
        // Callers bring their own channel; the generated `connect` would clash with SessionService.Connect.
        .build_transport(false)
        // What a message stands for is bounded before it is decoded.
        .codec_path("crate::wire::codec::BoundedCodec")
        // Comments of the vendored Google files are not written for rustdoc.
        .disable_comments([".google"])
        .type_attribute(".", "#[allow(clippy::large_enum_variant)]")
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}

/// Implementations of `UnaryRequest`: what answers each request, at which path.
fn unary(pool: &DescriptorPool) -> String {
    let named = |message: MessageDescriptor| match message.full_name() {
        "google.protobuf.Empty" => "()".to_owned(),
        name => format!("super::generated::{}", name.replace('.', "::")),
    };
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods
        .filter(|method| !method.is_client_streaming() && !method.is_server_streaming())
        .map(|method| {
            format!(
                "impl UnaryRequest for {} {{ type Answer = {}; const PATH: &'static str = \"/{}/{}\"; }}\n",
                named(method.input()),
                named(method.output()),
                method.parent_service().full_name(),
                method.name()
            )
        })
        .collect()
}
