//! How a block is split over the links to its peers (MPress, III-C).
//!
//! Parts are in proportion to bandwidth, so that all of them end together. What a peer has no room for the others take,
//! as water fills basins; where links have latencies, one that would end after the others have all arrived takes none.

#[cfg(test)]
mod tests;

use loadmaster_proto::cluster::Link;
use loadmaster_proto::training::actions::Stripe;

/// A device that blocks may go to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Receiver {
    /// Its stage.
    pub stage: u32,
    /// The link to it.
    pub link: Link,
    /// Bytes that are free there all the time.
    pub spare_bytes: u64,
}

/// How a block is split.
#[derive(Debug, Clone, PartialEq)]
pub struct Striping {
    /// Its parts, by stage.
    pub stripes: Vec<Stripe>,
    /// Seconds until the last of them has arrived.
    pub seconds: f64,
    /// Bytes that each receiver of a stripe sets aside, in the same order.
    pub pools: Vec<u64>,
}

/// What [`Stripe::split`] adds to a part at most.
const ROUNDED_UP: u64 = 63;

impl Receiver {
    /// Seconds until so many bytes are there.
    fn seconds(&self, bytes: f64) -> f64 {
        if bytes > 0.0 { self.link.latency_seconds + bytes / self.link.bytes_per_second } else { 0.0 }
    }
}

/// The fastest way to split blocks of so many bytes of which so many are away at once; none where the receivers have no
/// room for them. No slower than any one link with room for all.
pub fn stripe(block_bytes: u64, at_once: u64, receivers: &[Receiver]) -> Option<Striping> {
    let room = |receiver: &Receiver| (receiver.spare_bytes / at_once.max(1)).min(block_bytes);
    let rooms: Vec<u64> = receivers.iter().map(room).collect();
    // Where a stripe begins is rounded up, so that a full room would be too small for it.
    let looser: Vec<u64> = rooms.iter().map(|room| room.saturating_sub(ROUNDED_UP)).collect();
    let shares = [looser, rooms].into_iter().filter_map(|rooms| {
        filled(block_bytes, receivers, &rooms).and_then(|parts| rounded(block_bytes, &parts, &rooms))
    });
    let alone = (0..receivers.len()).map(|only| {
        let whole = |index| if index == only { Stripe::WHOLE } else { 0 };
        (0..receivers.len()).map(whole).collect()
    });
    // Rounding may cost a small block more than the other links are worth.
    let all = shares.chain(alone).filter_map(|shares| split(block_bytes, at_once, receivers, &shares));
    all.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// All of the blocks to one receiver, the one that is reached fastest of those with room: what MPress is compared with.
pub fn whole(block_bytes: u64, at_once: u64, receivers: &[Receiver]) -> Option<Striping> {
    let alone = receivers
        .iter()
        .filter_map(|receiver| split(block_bytes, at_once, std::slice::from_ref(receiver), &[Stripe::WHOLE]));
    alone.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// Bytes for each receiver so that the last part arrives as early as it can; none where there is no room.
fn filled(bytes: u64, receivers: &[Receiver], rooms: &[u64]) -> Option<Vec<f64>> {
    let room: u128 = rooms.iter().map(|&room| u128::from(room)).sum();
    if room < u128::from(bytes) {
        return None;
    }
    let at = |seconds: f64| {
        receivers.iter().zip(rooms).map(move |(Receiver { link, .. }, &room)| {
            ((seconds - link.latency_seconds) * link.bytes_per_second).clamp(0.0, room as f64)
        })
    };
    // What has arrived grows by straight lines, from where links begin to where rooms are full.
    let bends = receivers.iter().zip(rooms).flat_map(|(receiver, &room)| {
        let Link { bytes_per_second, latency_seconds, .. } = receiver.link;
        [latency_seconds, latency_seconds + room as f64 / bytes_per_second]
    });
    let mut bends: Vec<f64> = bends.collect();
    bends.sort_by(f64::total_cmp);
    let end = bends.iter().position(|&bend| at(bend).sum::<f64>() >= bytes as f64).unwrap_or(bends.len());
    let late = bends.get(end).or_else(|| bends.last()).copied()?;
    let early = end.checked_sub(1).and_then(|before| bends.get(before)).copied().unwrap_or(0.0);
    let (before, behind) = (at(early).sum::<f64>(), at(late).sum::<f64>());
    let missing =
        if behind > before { ((bytes as f64 - before) / (behind - before)).clamp(0.0, 1.0) } else { 1.0 };
    Some(at(early + (late - early) * missing).collect())
}

/// The parts in ten-thousandths that add up, none more than its receiver has room for.
fn rounded(bytes: u64, parts: &[f64], rooms: &[u64]) -> Option<Vec<u32>> {
    let whole = f64::from(Stripe::WHOLE);
    let part_of = |bytes_of: f64| bytes_of / (bytes.max(1)) as f64 * whole;
    let mut shares: Vec<u32> =
        parts.iter().map(|&part| part_of(part).floor().clamp(0.0, whole) as u32).collect();
    let most: Vec<u32> = rooms.iter().map(|&room| part_of(room as f64).floor().min(whole) as u32).collect();
    // What was cut off most gets the first of what is missing.
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let cut = |index: usize| part_of(parts[index]).fract();
    order.sort_by(|&a, &b| cut(b).total_cmp(&cut(a)));
    let mut missing = Stripe::WHOLE.saturating_sub(shares.iter().sum());
    while missing > 0 {
        let before = missing;
        for &index in &order {
            if missing > 0 && shares[index] < most[index] && parts[index] > 0.0 {
                shares[index] += 1;
                missing -= 1;
            }
        }
        if missing == before {
            return None;
        }
    }
    (shares.iter().sum::<u32>() == Stripe::WHOLE).then_some(shares)
}

/// What these shares come to; none where a receiver has no room for its part.
fn split(block_bytes: u64, at_once: u64, receivers: &[Receiver], shares: &[u32]) -> Option<Striping> {
    let used = receivers.iter().zip(shares).filter(|(_, share)| **share > 0);
    let (receivers, stripes): (Vec<&Receiver>, Vec<Stripe>) =
        used.map(|(receiver, &share)| (receiver, Stripe { stage: receiver.stage, share })).unzip();
    let mut pools = Vec::with_capacity(stripes.len());
    let mut seconds = 0.0_f64;
    for (receiver, bytes) in receivers.iter().zip(Stripe::split(&stripes, block_bytes)) {
        let pool = bytes.checked_mul(at_once)?;
        if pool > receiver.spare_bytes {
            return None;
        }
        pools.push(pool);
        seconds = seconds.max(receiver.seconds(bytes as f64));
    }
    (!stripes.is_empty() && stripes.len() <= Stripe::MAX).then_some(Striping { stripes, seconds, pools })
}
