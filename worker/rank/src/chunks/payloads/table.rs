//! A table of tokens on the host: how its rows come and leave, and when it is updated.

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::host::HostPart;
use tch::Tensor;

use super::Payloads;
use crate::actions::lane::Ticket;
use crate::chunks::host::Update;
use crate::chunks::rows::Tokens;
use crate::completion::Completion;
use crate::error::RankError;
use crate::ffi::{self, Direction, Storage, Transfer};
use crate::tape::defect;

impl Payloads {
    /// Copies the rows of these tokens to the device, from a table on the host, and waits for them.
    ///
    /// # Errors
    /// When one of them is not there.
    pub(in crate::chunks) fn gather(&mut self, tokens: Tokens, to: &Tensor) -> Result<(), RankError> {
        let rows = self.rows.as_ref().ok_or_else(no_table)?;
        let gathered = rows.gather(tokens, self.host.updated[HostTable::CHUNK].clone());
        let ticket = self.copy_rows(to, rows.parts.up, Direction::Back, Some(gathered))?;
        let copied = ticket.completion()?;
        self.rows.iter_mut().for_each(|rows| rows.copied = Some(copied.clone()));
        self.counts.came(ticket.wait()?);
        Ok(())
    }

    /// Copies the gradient of the rows of these tokens to the host, where it is added to that of their table, and waits for the
    /// copy.
    ///
    /// # Errors
    /// When it fails.
    pub(in crate::chunks) fn scatter(&mut self, tokens: Tokens, gradient: &Tensor) -> Result<(), RankError> {
        let rows = self.rows.as_ref().ok_or_else(no_table)?;
        let (down, added) = (rows.parts.down, rows.added.clone());
        let ticket = self.copy_rows(gradient, down, Direction::Out, added)?;
        let copied = ticket.completion()?;
        self.rows.iter_mut().for_each(|rows| rows.add(tokens.clone(), copied.clone()));
        self.counts.left(ticket.wait()?);
        Ok(())
    }

    fn copy_rows(
        &mut self,
        rows: &Tensor,
        place: HostPart,
        direction: Direction,
        after: Option<Completion>,
    ) -> Result<Ticket, RankError> {
        let storage = Storage::of(rows)?;
        let transfer = Transfer::new(&storage, (0, place.bytes), &self.host.mapping, place.start, direction);
        self.counts.copied_rows(direction, place.bytes);
        self.begin(transfer, place.bytes, direction, after)
    }

    /// Asks for the update of a table on the host, whose gradients are all there or on their way.
    ///
    /// # Errors
    /// When there is none.
    pub(in crate::chunks) fn update_table(&mut self) -> Result<(), RankError> {
        let rows = self.rows.as_ref().ok_or_else(no_table)?;
        let places = &self.host.memory.chunks[HostTable::CHUNK];
        let (updated, end) = Completion::begun();
        let update = Update {
            after: rows.added.clone().ok_or_else(no_table)?,
            gradients: rows.parts.gradients,
            parameters: places.parameters,
            state: places.state.clone(),
            clears: true,
            tensors: vec![(0, rows.table.rows.saturating_mul(rows.table.width))],
            steps: self.steps,
            end,
        };
        self.ask_for(HostTable::CHUNK, update, updated);
        Ok(())
    }

    /// The gradient of a table on the host, once it is complete.
    ///
    /// # Errors
    /// When there is none.
    pub(in crate::chunks) fn table_gradient(&self, shape: &[i64]) -> Result<Tensor, RankError> {
        let rows = self.rows.as_ref().ok_or_else(no_table)?;
        rows.added.as_ref().map_or(Ok(()), Completion::wait)?;
        let bytes = rows.table.rows.saturating_mul(rows.table.width) * self.kind.elt_size_in_bytes() as u64;
        let numbers = self.host.mapping.numbers::<u8>(rows.parts.gradients.start, bytes);
        let mut numbers = numbers.ok_or_else(no_table)?;
        Ok(ffi::aside(|| Tensor::f_from_data_size(numbers.all(), shape, self.kind))?)
    }
}

fn no_table() -> RankError {
    defect("no table is on the host")
}
