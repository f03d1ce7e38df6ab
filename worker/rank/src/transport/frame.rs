//! What is written between ranks of two stages: a hello, then frames.
//!
//! A frame is a head of fixed size, then the bytes of one tensor. The reader knows what must come, so it checks
//! every field before it makes room for a single byte.

use std::io::{self, Read, Write};

use tch::Kind;

use super::Crossing;
use crate::peers::{Address, Tie};
use crate::tensor::Form;

/// Marks a hello and the version of its layout.
const HELLO_MAGIC: u32 = 0x4c4d_4801;
/// magic, tie, three zeros, stage, shard.
const HELLO_BYTES: usize = 4 + 1 + 3 + 4 + 4;
/// Marks the start of a frame and the version of its layout.
const MAGIC: u32 = 0x4c4d_5203;
/// Most axes of a tensor.
const MAX_AXES: usize = 8;
/// magic, content, number format, axes, a zero, micro-batch, then the shape.
const HEAD_BYTES: usize = 4 + 1 + 1 + 1 + 1 + 4 + 8 * MAX_AXES;

/// The first words over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    /// Why it calls.
    pub(super) tie: Tie,
    /// Who calls.
    pub(super) caller: Address,
}

impl Hello {
    pub(super) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&HELLO_MAGIC.to_le_bytes());
        bytes[4] = match self.tie {
            Tie::Neighbour => 1,
            Tie::SharedWeight => 2,
            Tie::Shard => 3,
            Tie::Pool => 4,
        };
        bytes[8..12].copy_from_slice(&self.caller.stage.to_le_bytes());
        bytes[12..].copy_from_slice(&self.caller.shard.to_le_bytes());
        stream.write_all(&bytes)
    }

    pub(super) fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; HELLO_BYTES];
        stream.read_exact(&mut bytes)?;
        if word(&bytes, 0) != HELLO_MAGIC {
            return Err(invalid("not a hello of this version".to_owned()));
        }
        let tie = match bytes[4] {
            1 => Tie::Neighbour,
            2 => Tie::SharedWeight,
            3 => Tie::Shard,
            4 => Tie::Pool,
            other => return Err(invalid(format!("a hello has the unknown purpose {other}"))),
        };
        Ok(Self { tie, caller: Address { stage: word(&bytes, 8), shard: word(&bytes, 12) } })
    }
}

/// A tensor on its way.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) crossing: Crossing,
    pub(super) micro_batch: u32,
    pub(super) form: Form,
    pub(super) bytes: Vec<u8>,
}

impl Frame {
    pub(super) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        stream.write_all(&head(Some(self.crossing), self.micro_batch, &self.form)?)?;
        stream.write_all(&self.bytes)
    }

    /// Reads a frame that must carry a tensor of this form, or the goodbye.
    pub(super) fn read(stream: &mut impl Read, crossing: Crossing, form: &Form) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head)?;
        if word(&head, 0) != MAGIC {
            return Err(invalid("not a frame of this version".to_owned()));
        }
        let Some(content) = content(head[4])? else { return Ok(None) };
        let said = form_of(&head)?;
        if content != crossing || said != *form {
            return Err(invalid(format!(
                "expected {crossing:?} of type {:?} and shape {:?}, received {content:?} of type {:?} and shape {:?}",
                form.kind, form.shape, said.kind, said.shape
            )));
        }
        let bytes = usize::try_from(form.bytes())
            .map_err(|_| invalid(format!("a tensor of {} bytes exceeds the address space", form.bytes())))?;
        let mut bytes = vec![0; bytes];
        stream.read_exact(&mut bytes)?;
        Ok(Some(Self { crossing, micro_batch: word(&head, 8), form: said, bytes }))
    }
}

/// Writes the last frame: the end of the stream after it is no accident.
pub(super) fn write_goodbye(stream: &mut impl Write) -> io::Result<()> {
    stream.write_all(&head(None, 0, &Form { kind: Kind::Uint8, shape: vec![0] })?)
}

/// What comes before the bytes. Without a crossing it is the goodbye.
fn head(crossing: Option<Crossing>, micro_batch: u32, form: &Form) -> io::Result<[u8; HEAD_BYTES]> {
    let axes = form.shape.len();
    if axes > MAX_AXES {
        return Err(invalid(format!("a tensor has {axes} axes, more than the limit of {MAX_AXES}")));
    }
    let mut bytes = [0; HEAD_BYTES];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4] = match crossing {
        None => 0,
        Some(Crossing::Activation) => 1,
        Some(Crossing::Gradient) => 2,
        Some(Crossing::TiedGradient) => 3,
    };
    bytes[5] = kind_code(form.kind)?;
    bytes[6] = axes as u8;
    bytes[8..12].copy_from_slice(&micro_batch.to_le_bytes());
    for (slot, extent) in bytes[12..].chunks_exact_mut(8).zip(&form.shape) {
        slot.copy_from_slice(&extent.to_le_bytes());
    }
    Ok(bytes)
}

fn content(code: u8) -> io::Result<Option<Crossing>> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(Crossing::Activation)),
        2 => Ok(Some(Crossing::Gradient)),
        3 => Ok(Some(Crossing::TiedGradient)),
        other => Err(invalid(format!("a frame has the unknown content {other}"))),
    }
}

fn form_of(head: &[u8; HEAD_BYTES]) -> io::Result<Form> {
    let axes = usize::from(head[6]);
    if axes > MAX_AXES {
        return Err(invalid(format!("a received tensor has {axes} axes, more than the limit of {MAX_AXES}")));
    }
    let shape = head[12..]
        .chunks_exact(8)
        .take(axes)
        .map(|slot| slot.try_into().map(i64::from_le_bytes).map_err(|_| invalid("cut".to_owned())))
        .collect::<io::Result<Vec<i64>>>()?;
    Ok(Form { kind: kind_of(head[5])?, shape })
}

fn kind_code(kind: Kind) -> io::Result<u8> {
    match kind {
        Kind::Uint8 => Ok(0),
        Kind::Float => Ok(1),
        Kind::BFloat16 => Ok(2),
        other => Err(invalid(format!("tensors of {other:?} cannot be sent"))),
    }
}

fn kind_of(code: u8) -> io::Result<Kind> {
    match code {
        0 => Ok(Kind::Uint8),
        1 => Ok(Kind::Float),
        2 => Ok(Kind::BFloat16),
        other => Err(invalid(format!("a tensor has the unknown number format {other}"))),
    }
}

/// The four bytes at `at`, which a head or a hello has.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn form() -> Form {
        Form { kind: Kind::Float, shape: vec![2, 3] }
    }

    fn frame(crossing: Crossing, micro_batch: u32) -> Frame {
        Frame { crossing, micro_batch, form: form(), bytes: (0..24).collect() }
    }

    #[test]
    fn a_frame_comes_out_as_it_went_in() {
        let mut wire = Vec::new();
        frame(Crossing::Gradient, 7).write(&mut wire).unwrap();
        write_goodbye(&mut wire).unwrap();
        let mut wire = wire.as_slice();
        let read = Frame::read(&mut wire, Crossing::Gradient, &form()).unwrap().unwrap();
        assert_eq!((read.micro_batch, &read.form), (7, &form()));
        assert_eq!(read.bytes, (0..24).collect::<Vec<u8>>());
        assert!(Frame::read(&mut wire, Crossing::Gradient, &form()).unwrap().is_none());
    }

    /// Pins that a hello tells stage and shard apart, and that it is taken for no frame.
    #[test]
    fn a_hello_says_who_calls_and_why() {
        for tie in [Tie::Neighbour, Tie::SharedWeight, Tie::Shard, Tie::Pool] {
            let hello = Hello { tie, caller: Address { stage: 3, shard: 5 } };
            let mut wire = Vec::new();
            hello.write(&mut wire).unwrap();
            assert_eq!(Hello::read(&mut wire.as_slice()).unwrap(), hello);
            wire.resize(HEAD_BYTES, 0);
            assert!(Frame::read(&mut wire.as_slice(), Crossing::Activation, &form()).is_err());
        }
        let mut wire = Vec::new();
        frame(Crossing::Activation, 3).write(&mut wire).unwrap();
        assert!(Hello::read(&mut wire.as_slice()).is_err());
    }

    #[test]
    fn other_tensors_than_agreed_are_refused() {
        let mut wire = Vec::new();
        frame(Crossing::Activation, 0).write(&mut wire).unwrap();
        assert!(Frame::read(&mut wire.as_slice(), Crossing::Gradient, &form()).is_err());
        let larger = Form { shape: vec![2, 4], ..form() };
        assert!(Frame::read(&mut wire.as_slice(), Crossing::Activation, &larger).is_err());
        let half = Form { kind: Kind::BFloat16, ..form() };
        assert!(Frame::read(&mut wire.as_slice(), Crossing::Activation, &half).is_err());
        assert!(Frame::read(&mut &wire[..wire.len() - 1], Crossing::Activation, &form()).is_err());
    }

    proptest! {
        /// Whatever a peer writes, reading it ends with a frame, a hello or an error.
        #[test]
        fn noise_is_refused_without_a_panic(mut wire in proptest::collection::vec(any::<u8>(), 0..200), valid in any::<bool>()) {
            for magic in [MAGIC, HELLO_MAGIC] {
                if valid && wire.len() >= 4 {
                    wire[..4].copy_from_slice(&magic.to_le_bytes());
                }
                let _ = Frame::read(&mut wire.as_slice(), Crossing::Activation, &form());
                let _ = Hello::read(&mut wire.as_slice());
            }
        }
    }
}
