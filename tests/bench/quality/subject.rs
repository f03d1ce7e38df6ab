//! The models that plans are made for.

/// A model and how it is trained.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// Short name.
    pub(crate) id: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// Options of `profile run` that name the model.
    pub(crate) model: Vec<&'static str>,
    /// Samples of one pass of a whole stage.
    pub(crate) micro_batch_size: u32,
    /// Passes per iteration.
    pub(crate) micro_batches: u32,
}

/// Names that the command line takes.
pub(crate) fn names() -> Vec<&'static str> {
    all(false).iter().map(|subject| subject.id).chain([crate::quality::largest::ID]).collect()
}

/// All models, or tiny ones of the same families.
pub(crate) fn all(quick: bool) -> Vec<Subject> {
    let subject = |id, title, model: &[&'static str], micro_batch_size, micro_batches| Subject {
        id,
        title,
        model: model.to_vec(),
        micro_batch_size,
        micro_batches,
    };
    if quick {
        let tiny = ["--model", "gpt2", "--blocks", "3", "--hidden-size", "32", "--heads", "4"];
        let tiny = [&tiny[..], &["--sequence-length", "16", "--vocabulary-size", "96"]].concat();
        return vec![subject("gpt2", "GPT-2, 3 blocks of 32, to try it out", &tiny, 4, 2)];
    }
    vec![
        subject(
            "vgg11",
            "VGG11, 64 pixels, 30 layers",
            &["--model", "vgg11", "--image-size", "64", "--classes", "10", "--classifier-width", "512"],
            8,
            4,
        ),
        subject(
            "amoebanet",
            "AmoebaNet-D (18, 208), 64 pixels, 24 layers",
            &["--model", "amoebanet_d", "--cells", "18", "--filters", "208", "--image-size", "64"],
            4,
            4,
        ),
        subject(
            "gpt2",
            "GPT-2, 12 blocks of 256, sequence 128, vocabulary 8,192",
            &[
                "--model",
                "gpt2",
                "--blocks",
                "12",
                "--hidden-size",
                "256",
                "--heads",
                "8",
                "--sequence-length",
                "128",
                "--vocabulary-size",
                "8192",
            ],
            8,
            4,
        ),
    ]
}
