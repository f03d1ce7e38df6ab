//! Messages are measured before they are decoded.
//!
//! An empty part of a message takes two bytes on the wire and some hundred in memory, so a message that is short
//! enough to be taken could stand for gigabytes. The parts are counted in the encoded bytes, whatever they mean: a
//! field that has a length is taken for a message where it reads as one.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// What a message may stand for at most, in units of about 50 bytes. The largest cluster takes half of it.
const MOST_UNITS: usize = 3_000_000;
/// Units of a part that is a message, or empty.
const MESSAGE: usize = 4;
/// Units of a short text.
const TEXT: usize = 1;
/// Longest text that takes more memory than its message was long, bytes.
const SHORT: usize = 16;
/// Messages within messages that are looked into.
const MAX_DEPTH: usize = 8;

/// Prost's codec for messages that do not stand for too much.
#[derive(Debug, Clone, Copy)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Decodes messages that do not stand for too much.
#[derive(Debug, Clone)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // A message is in one piece.
        if !is_bounded(buffer.chunk(), MOST_UNITS) {
            return Err(Status::out_of_range(
                "the message has too many fields and list entries to decode. Send a smaller message",
            ));
        }
        self.0.decode(buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Whether an encoded message stands for at most so many units.
fn is_bounded(message: &[u8], most: usize) -> bool {
    let mut units = 0;
    count(message, 0, &mut units, most);
    units <= most
}

/// Counts the parts of what may be a message; says whether it reads as one.
fn count(mut bytes: &[u8], depth: usize, units: &mut usize, most: usize) -> bool {
    while !bytes.is_empty() {
        if *units > most {
            return false;
        }
        let Some(tag) = varint(&mut bytes).filter(|tag| tag >> 3 != 0) else { return false };
        let length = match tag & 7 {
            0 => match varint(&mut bytes) {
                Some(_) => continue,
                None => return false,
            },
            1 => 8,
            5 => 4,
            2 => match varint(&mut bytes).and_then(|length| usize::try_from(length).ok()) {
                Some(length) => length,
                None => return false,
            },
            _ => return false,
        };
        let Some((part, rest)) = bytes.split_at_checked(length) else { return false };
        bytes = rest;
        if tag & 7 == 2 {
            let is_message = depth < MAX_DEPTH && count(part, depth + 1, units, most);
            *units += match part.len() {
                _ if is_message => MESSAGE,
                ..SHORT => TEXT,
                _ => 0,
            };
        }
    }
    true
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::v1;

    fn units(message: &impl Message) -> usize {
        let mut units = 0;
        count(&message.encode_to_vec(), 0, &mut units, usize::MAX);
        units
    }

    /// Two bytes each on the wire, a quarter of a kilobyte each in memory.
    #[test]
    fn empty_parts_count_though_they_are_short() {
        let nodes = |count: usize| v1::Cluster {
            nodes: vec![v1::ClusterNode::default(); count],
            ..v1::Cluster::default()
        };
        assert_eq!(units(&nodes(1_000)), 1_000 * MESSAGE);
        let many = nodes(MOST_UNITS / MESSAGE + 1).encode_to_vec();
        assert!(many.len() < 2 << 20 && !is_bounded(&many, MOST_UNITS));
        let texts = v1::Constraints { excluded_devices: vec!["a".to_owned(); 100], ..Default::default() };
        assert_eq!(units(&texts), 100 * TEXT);
    }

    /// A cluster of the most devices, each with all that can be said of it.
    #[test]
    fn the_largest_messages_are_within_the_limit() {
        let device = |index: i32| v1::ClusterDevice {
            index,
            kind: "NVIDIA H100 80GB HBM3".to_owned(),
            uuid: "GPU-11111111-2222-3333-4444-555555555555".to_owned(),
            pci_bus_id: "00000000:3B:00.0".to_owned(),
            ..Default::default()
        };
        let speed = Some(v1::LinkSpeed { bytes_per_second: 1e9, latency_seconds: 1e-6, origin: 1 });
        let node = |index: usize| v1::ClusterNode {
            name: format!("node{index:05}"),
            labels: [("rack".to_owned(), "a".to_owned()), ("row".to_owned(), "b".to_owned())].into(),
            devices: (0..8).map(device).collect(),
            link: speed,
            network: speed,
            ..Default::default()
        };
        let cluster = v1::Cluster { nodes: (0..20_000).map(node).collect(), ..Default::default() };
        assert!(units(&cluster) < MOST_UNITS / 2, "{}", units(&cluster));
        let document = v1::ImportProfileRequest { document: "{},".repeat(5 << 20), ..Default::default() };
        assert!(units(&document) <= MESSAGE);
    }

    proptest! {
        /// Whatever comes is counted, without a panic and without end.
        #[test]
        fn any_bytes_are_counted(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            prop_assert!(is_bounded(&bytes, MOST_UNITS));
        }
    }
}
