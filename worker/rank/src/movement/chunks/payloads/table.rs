//! A table of tokens on the host: how its rows come and leave, when it is updated, and how ranks share it.

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::host::HostPart;
use loadmaster_proto::chunks::residency::intervals::CopyCause;
use tch::Tensor;

use super::{Payloads, way};
use crate::completion::Completion;
use crate::error::RankError;
use crate::ffi::{self, Storage, Transfer};
use crate::movement::chunks::embedding_rows::Tokens;
use crate::movement::chunks::host::Update;
use crate::movement::lane::{Ticket, behind};
use crate::tape::defect;

impl Payloads {
    /// Copies the rows of these tokens to the device, from a table on the host, and waits for them.
    ///
    /// # Errors
    /// When one of them is not there.
    pub(crate) fn gather(&mut self, tokens: Tokens, to: &Tensor) -> Result<(), RankError> {
        self.share_table()?;
        let rows = self.rows.as_ref().ok_or_else(no_table)?;
        let gathered = rows.gather(tokens, self.host.updated[HostTable::CHUNK].clone());
        let ticket = self.copy_rows(to, rows.parts.up, CopyCause::Rows, Some(gathered))?;
        let copied = ticket.completion()?;
        self.rows.iter_mut().for_each(|rows| rows.copied = Some(copied.clone()));
        self.counts.came.add(ticket.wait()?);
        Ok(())
    }

    /// Copies the gradient of the rows of these tokens to the host, where it is added to that of their table, and waits for the
    /// copy.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn scatter(&mut self, tokens: Tokens, gradient: &Tensor) -> Result<(), RankError> {
        let rows = self.rows.as_ref().ok_or_else(no_table)?;
        let (down, added) = (rows.parts.down, rows.added.clone());
        let ticket = self.copy_rows(gradient, down, CopyCause::RowGradients, added)?;
        let copied = ticket.completion()?;
        self.rows.iter_mut().for_each(|rows| rows.add(tokens.clone(), copied.clone()));
        self.counts.left.add(ticket.wait()?);
        Ok(())
    }

    fn copy_rows(
        &mut self,
        rows: &Tensor,
        place: HostPart,
        cause: CopyCause,
        after: Option<Completion>,
    ) -> Result<Ticket, RankError> {
        let storage = Storage::of(rows)?;
        let transfer = Transfer::new(&storage, (0, place.bytes), &self.host.mapping, place.start, way(cause));
        self.begin(transfer, place.bytes, cause, behind(after))
    }

    /// Asks for the update of a table on the host, whose gradients are all there or on their way. Where others share the table, of
    /// what this rank owns of it, once all have added up theirs.
    ///
    /// # Errors
    /// When there is none, or a rank is gone.
    pub(crate) fn update_table(&mut self) -> Result<(), RankError> {
        self.reduce_table()?;
        let rows = self.rows.as_mut().ok_or_else(no_table)?;
        rows.has_whole = false;
        let places = &self.host.memory.chunks[HostTable::CHUNK];
        let elements = rows.table.rows.saturating_mul(rows.table.width);
        let (after, parts, owned) =
            (rows.added.clone().ok_or_else(no_table)?, rows.parts, rows.owned.clone());
        let kept = places.parameters.map(|place| self.own_part(HostTable::CHUNK, place));
        let (updated, end) = Completion::begun();
        let update = Update {
            after,
            gradients: self.owned_of(HostTable::CHUNK, parts.gradients),
            copies: kept
                .into_iter()
                .chain(parts.whole.map(|whole| self.owned_of(HostTable::CHUNK, whole)))
                .collect(),
            state: places.state.clone(),
            clears: true,
            // The last parts may end behind the table, or begin there.
            tensors: vec![(0, owned.end.min(elements).saturating_sub(owned.start))],
            steps: self.steps,
            end,
        };
        self.ask_for(HostTable::CHUNK, update, updated);
        Ok(())
    }

    /// Ranks that share a table add up their gradients of it, each those of its part.
    fn reduce_table(&mut self) -> Result<(), RankError> {
        let (Some(group), Some(rows)) = (self.group.clone(), &self.rows) else { return Ok(()) };
        rows.added.as_ref().map_or(Ok(()), Completion::wait)?;
        let own = usize::try_from(self.rank).unwrap_or(usize::MAX);
        self.exchange_table(rows.parts.gradients, |slices| {
            group.reduce_scatter(slices)?;
            // The next iteration adds up again; what this rank owns is zero behind its update.
            let others = slices.iter().enumerate().filter(|(rank, _)| *rank != own);
            others
                .map(|(_, slice)| slice)
                .try_for_each(|slice| Ok(slice.shallow_clone().f_zero_().map(drop)?))
        })?;
        self.counts.scattered(self.chunks.others_bytes(HostTable::CHUNK));
        Ok(())
    }

    /// Ranks that share a table give each other their parts of it, unless nothing changed since they did.
    fn share_table(&mut self) -> Result<(), RankError> {
        let (Some(group), Some(rows)) = (self.group.clone(), &self.rows) else { return Ok(()) };
        let Some(whole) = rows.parts.whole.filter(|_| !rows.has_whole) else { return Ok(()) };
        self.host.updated[HostTable::CHUNK].as_ref().map_or(Ok(()), Completion::wait)?;
        self.exchange_table(whole, |slices| group.all_gather(slices))?;
        self.counts.gathered(self.chunks.others_bytes(HostTable::CHUNK));
        self.rows.iter_mut().for_each(|rows| rows.has_whole = true);
        Ok(())
    }

    /// Exchanges a list of all of the table, of whose parts each rank owns one: slice by slice, so that what is on its way takes
    /// little of the host.
    fn exchange_table(
        &self,
        list: HostPart,
        exchange: impl Fn(&[Tensor]) -> Result<(), RankError>,
    ) -> Result<(), RankError> {
        let part = self.chunks.copied_bytes(HostTable::CHUNK, false);
        let ranks = u64::from(self.chunks.sharing.ranks());
        let size = self.kind.elt_size_in_bytes() as u64;
        let mut at = 0;
        while at < part {
            let bytes = (part - at).min(SLICE_BYTES);
            let place = |rank: u64| {
                let numbers = self.host.mapping.numbers::<u8>(list.start + rank * part + at, bytes);
                numbers.ok_or_else(no_table)
            };
            ffi::aside(|| {
                let shape = [i64::try_from(bytes / size).unwrap_or(i64::MAX)];
                let slice = |rank| Ok(Tensor::f_from_data_size(place(rank)?.all(), &shape, self.kind)?);
                let slices: Vec<Tensor> = (0..ranks).map(slice).collect::<Result<_, RankError>>()?;
                exchange(&slices)?;
                (0..ranks).zip(&slices).try_for_each(|(rank, slice)| {
                    Ok::<_, RankError>(slice.f_copy_data_u8(place(rank)?.all(), slice.numel())?)
                })
            })?;
            at += bytes;
        }
        Ok(())
    }

    /// The gradient of a table on the host, once it is complete.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn table_gradient(&self, shape: &[i64]) -> Result<Tensor, RankError> {
        let rows = self.rows.as_ref().ok_or_else(no_table)?;
        rows.added.as_ref().map_or(Ok(()), Completion::wait)?;
        let bytes = rows.table.rows.saturating_mul(rows.table.width) * self.kind.elt_size_in_bytes() as u64;
        let numbers = self.host.mapping.numbers::<u8>(rows.parts.gradients.start, bytes);
        let mut numbers = numbers.ok_or_else(no_table)?;
        Ok(ffi::aside(|| Tensor::f_from_data_size(numbers.all(), shape, self.kind))?)
    }
}

/// Bytes of each rank's part of a table that are exchanged at once: whole numbers.
const SLICE_BYTES: u64 = 4 << 20;

fn no_table() -> RankError {
    defect("no embedding table is in CPU memory")
}
