//! Mappings of stages to devices that the links tell apart.

use super::LinkGraph;

impl LinkGraph {
    /// Most devices of which all mappings are listed: there are n! of them.
    pub const MOST_LISTED: usize = 8;

    /// One of every class of mappings, by stage its device, in ascending order: two are in one class if a renumbering that
    /// leaves every link as it is makes one of the other. None of more devices than [`Self::MOST_LISTED`], or more stages
    /// than devices.
    ///
    /// A symmetry that moves no device of a mapping's first stages may still move others. So each stage in turn takes the
    /// first device of every orbit of the symmetries that leave the devices of the stages before it where they are: these
    /// choices meet every class once.
    pub fn classes(&self, stages: usize) -> Option<Vec<Vec<usize>>> {
        if self.devices > Self::MOST_LISTED || stages > self.devices {
            return None;
        }
        let symmetries = self.symmetries();
        let mut all = Vec::new();
        let mut mapping = Vec::with_capacity(stages);
        each(stages, self.devices, &symmetries.iter().collect::<Vec<_>>(), &mut mapping, &mut all);
        Some(all)
    }
}

fn each(
    stages: usize,
    devices: usize,
    symmetries: &[&Vec<usize>],
    mapping: &mut Vec<usize>,
    all: &mut Vec<Vec<usize>>,
) {
    if mapping.len() == stages {
        all.push(mapping.clone());
        return;
    }
    for device in 0..devices {
        // What is first of its orbit is so of its class: a device that is taken is alone in its.
        let is_first =
            || symmetries.iter().all(|symmetry| symmetry.get(device).is_some_and(|&to| to >= device));
        if mapping.contains(&device) || !is_first() {
            continue;
        }
        let leave: Vec<&Vec<usize>> =
            symmetries.iter().filter(|symmetry| symmetry.get(device) == Some(&device)).copied().collect();
        mapping.push(device);
        each(stages, devices, &leave, mapping, all);
        mapping.pop();
    }
}
