//! Renumberings of devices that leave every link as it is.

use super::LinkGraph;

impl LinkGraph {
    /// All automorphisms: by device, the device that takes its place. The first one changes nothing. A switch has n! of
    /// them, so this is for few devices.
    pub(super) fn symmetries(&self) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        self.extend(&mut Vec::with_capacity(self.devices), &mut vec![false; self.devices], &mut all);
        all
    }

    /// Lets the next device be each one that has the same links to those before it.
    fn extend(&self, images: &mut Vec<usize>, taken: &mut [bool], all: &mut Vec<Vec<usize>>) {
        let next = images.len();
        if next == self.devices {
            all.push(images.clone());
            return;
        }
        for image in 0..self.devices {
            let is_free = taken.get(image) == Some(&false);
            if is_free && self.is_like(next, image) && self.has_links_of(next, image, images) {
                taken[image] = true;
                images.push(image);
                self.extend(images, taken, all);
                images.pop();
                taken[image] = false;
            }
        }
    }

    fn has_links_of(&self, device: usize, image: usize, images: &[usize]) -> bool {
        images.iter().enumerate().all(|(before, &placed)| {
            self.link(device, before) == self.link(image, placed)
                && self.link(before, device) == self.link(placed, image)
        })
    }
}
