//! Requests that no generated client would send.

use bytes::{Buf, BufMut};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// Largest answer that is read, bytes.
const MOST: usize = 16 << 20;

/// Calls a method with these bytes for a message; the answer is bytes, too.
///
/// # Errors
/// What the planner answers to them.
///
/// # Panics
/// The method has no path.
pub async fn raw_call(channel: &Channel, path: &str, request: Request<Vec<u8>>) -> Result<Vec<u8>, Status> {
    let mut client = Grpc::new(channel.clone()).max_decoding_message_size(MOST);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = path.parse().expect("it is a path");
    client.unary(request, path, Raw).await.map(Response::into_inner)
}

/// Sends bytes as they are.
#[derive(Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}
