use loadmaster_proto::cluster::LinkOrigin;
use proptest::prelude::*;

use super::*;

fn receiver(stage: u32, bytes_per_second: f64, latency_seconds: f64, spare_bytes: u64) -> Receiver {
    Receiver {
        stage,
        link: Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Given },
        spare_bytes,
    }
}

fn shares(striping: &Striping) -> Vec<(u32, u32)> {
    striping.stripes.iter().map(|stripe| (stripe.stage, stripe.share)).collect()
}

#[test]
fn equal_links_take_equal_parts_and_faster_ones_more() {
    let equal: Vec<Receiver> = (4..8).map(|stage| receiver(stage, 1e9, 0.0, u64::MAX)).collect();
    let striping = stripe(4_000_000_000, 3, &equal).unwrap();
    assert_eq!(shares(&striping), [(4, 2_500), (5, 2_500), (6, 2_500), (7, 2_500)]);
    assert_eq!((striping.seconds, striping.pools[0]), (1.0, 3_000_000_000));
    let mesh =
        [receiver(1, 1e9, 0.0, u64::MAX), receiver(2, 2e9, 0.0, u64::MAX), receiver(3, 1e9, 0.0, u64::MAX)];
    assert_eq!(shares(&stripe(4_000_000_000, 1, &mesh).unwrap()), [(1, 2_500), (2, 5_000), (3, 2_500)]);
}

/// By hand: 10 GB over 1, 2 and 1 GB/s; the second has room for 2 GB alone, so the others take 4 GB each.
#[test]
fn what_a_peer_has_no_room_for_the_others_take() {
    let peers = [
        receiver(1, 1e9, 0.0, 1 << 40),
        receiver(2, 2e9, 0.0, 2_000_000_000),
        receiver(3, 1e9, 0.0, 1 << 40),
    ];
    let striping = stripe(10_000_000_000, 1, &peers).unwrap();
    assert_eq!(shares(&striping), [(1, 4_000), (2, 2_000), (3, 4_000)]);
    assert_eq!(striping.seconds, 4.0);
    // Of two that are away at once it has room for half of that each.
    assert_eq!(shares(&stripe(10_000_000_000, 2, &peers).unwrap())[1], (2, 1_000));
}

/// By hand: 1 MB takes 1 ms over the first link; the second, twice as fast, has not begun by then.
#[test]
fn a_link_that_would_be_late_takes_nothing() {
    let peers = [receiver(1, 1e9, 0.0, 1 << 40), receiver(2, 2e9, 0.002, 1 << 40)];
    assert_eq!(shares(&stripe(1_000_000, 1, &peers).unwrap()), [(1, 10_000)]);
    // 10 MB: t + 2 (t − 2) = 10, so 14/3 ms.
    let striping = stripe(10_000_000, 1, &peers).unwrap();
    assert_eq!(shares(&striping), [(1, 4_667), (2, 5_333)]);
}

#[test]
fn without_room_there_are_no_stripes() {
    let peers = [receiver(1, 1e9, 0.0, 600), receiver(2, 1e9, 0.0, 300)];
    assert_eq!(stripe(1_000, 1, &peers), None);
    assert_eq!(stripe(1_000, 1, &[]), None);
    assert_eq!(stripe(500, 2, &[receiver(1, 1e9, 0.0, 999)]), None);
    assert!(stripe(500, 1, &peers).is_some());
    assert_eq!(whole(1_000, 1, &peers), None);
    assert_eq!(shares(&whole(400, 1, &peers).unwrap()), [(1, 10_000)]);
}

fn receivers() -> impl Strategy<Value = Vec<Receiver>> {
    let one =
        (1_u32..=8, 0_u32..=3, 0_u64..=12).prop_map(|(speed, late, room)| (speed, late, room * 1_000_000));
    proptest::collection::vec(one, 1..=3).prop_map(|all| {
        let of = |(index, (speed, late, room)): (usize, (u32, u32, u64))| {
            receiver(index as u32, f64::from(speed) * 1e9, f64::from(late) * 1e-4, room)
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

proptest! {
    /// Brute force: no split in fortieths that has room is faster, but by what rounding to ten-thousandths and 64 bytes
    /// can cost; where one has room there are stripes.
    #[test]
    fn no_other_split_is_faster(receivers in receivers(), megabytes in 1_u64..=10, at_once in 1_u64..=2) {
        let bytes = megabytes * 1_000_000;
        let found = stripe(bytes, at_once, &receivers);
        let mut splits = vec![Vec::new()];
        for _ in &receivers {
            splits = splits.into_iter().flat_map(|split: Vec<u32>| {
                let left = 40 - split.iter().sum::<u32>();
                (0..=left).map(move |part| split.iter().copied().chain([part]).collect())
            }).collect();
        }
        let whole = splits.iter().filter(|split| split.iter().sum::<u32>() == 40);
        for parts in whole {
            let parts: Vec<u64> = parts.iter().map(|&part| bytes / 40 * u64::from(part)).collect();
            // The edge of what fits is a matter of rounding.
            let mut each = receivers.iter().zip(&parts);
            if each.all(|(receiver, &part)| (part + part.min(bytes / 1_000)) * at_once <= receiver.spare_bytes) {
                let seconds = receivers.iter().zip(&parts).map(|(receiver, &part)| receiver.seconds(part as f64));
                let seconds = seconds.fold(0.0, f64::max);
                let found = found.as_ref().unwrap();
                let slowest = receivers.iter().map(|of| of.link.bytes_per_second).fold(f64::INFINITY, f64::min);
                let rounding = (bytes as f64 * 3e-4 + 192.0) / slowest;
                prop_assert!(found.seconds <= seconds + rounding, "{found:?} against {parts:?}: {seconds}");
            }
        }
    }

    /// Stripes are valid, have room, and are never slower than one link, nor made slower by one more or by more room.
    #[test]
    fn stripes_fit_and_are_never_slower_than_one_link(
        receivers in receivers(), bytes in 1_u64..=20_000_000, at_once in 1_u64..=3,
    ) {
        let alone = whole(bytes, at_once, &receivers);
        let Some(found) = stripe(bytes, at_once, &receivers) else {
            prop_assert_eq!(alone, None);
            return Ok(());
        };
        prop_assert!(alone.is_none_or(|alone| found.seconds <= alone.seconds));
        prop_assert_eq!(found.stripes.iter().map(|stripe| stripe.share).sum::<u32>(), Stripe::WHOLE);
        let parts = Stripe::split(&found.stripes, bytes);
        for ((stripe, part), pool) in found.stripes.iter().zip(parts).zip(&found.pools) {
            prop_assert!(stripe.share > 0);
            prop_assert_eq!(part * at_once, *pool);
            prop_assert!(*pool <= receivers[stripe.stage as usize].spare_bytes);
        }
    }
}
