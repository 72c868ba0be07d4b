//! What a worker says of the cellar.

use super::{Client, ClientError, batches, converse};
use crate::message::{Answer, Outcome, Request};
use crate::names::HandleKey;
use std::os::fd::{BorrowedFd, OwnedFd};

impl Client {
    /// Has the cellar's file, and a sealed memfd with its key, held for workers to come.
    pub fn keep_cellar(&mut self, file: BorrowedFd<'_>, key: BorrowedFd<'_>) -> Result<Outcome, ClientError> {
        // Taken, and put back only after a whole answer.
        let connection = self.connection.take().ok_or(ClientError::Disconnected)?;
        let answered = converse(&connection, &Request::KeepCellar, &[file, key], self.patience.answer)?;
        self.connection = Some(connection);
        match answered.0 {
            Answer::Outcome(outcome) => Ok(outcome),
            other => self.strange(&other),
        }
    }

    /// The files of the cellar that is kept, if there is one: its own, and its key's.
    pub fn cellar(&mut self) -> Result<Option<[OwnedFd; 2]>, ClientError> {
        let (answer, files) = self.ask_for_files(&Request::Cellar)?;
        match (answer, <[OwnedFd; 2]>::try_from(files)) {
            (Answer::Cellar { kept: true }, Ok(files)) => Ok(Some(files)),
            (Answer::Cellar { kept: false }, Err(files)) if files.is_empty() => Ok(None),
            (other, _) => self.strange(&other),
        }
    }

    /// The cellar has all blocks of a handle that is away: keeps their tickets, and has it sink. Only after that its arena
    /// space is free. The first outcome that is not so is the last.
    pub fn sink(&mut self, key: HandleKey, tickets: &[Vec<u8>]) -> Result<Outcome, ClientError> {
        let mut first = 0u32;
        for batch in batches::of_tickets(tickets) {
            match self.ask(&Request::KeepTickets { key, first, tickets: batch.to_vec() })? {
                Answer::Outcome(Outcome::Done) => {}
                Answer::Outcome(other) => return Ok(other),
                other => return self.strange(&other),
            }
            first = first.saturating_add(u32::try_from(batch.len()).unwrap_or(u32::MAX));
        }
        self.ask_about_one(&Request::Sink { keys: vec![key] })
    }

    /// All of a handle was fetched to the space that was reserved for it. Only after that its blocks may be discarded.
    pub fn rise(&mut self, key: HandleKey) -> Result<Outcome, ClientError> {
        self.ask_about_one(&Request::Rise { keys: vec![key] })
    }

    /// The tickets of a handle in the cellar, one for each block.
    pub fn tickets(&mut self, key: HandleKey) -> Result<Vec<Vec<u8>>, ClientError> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        loop {
            let first = u32::try_from(all.len()).unwrap_or(u32::MAX);
            match self.ask(&Request::Tickets { key, first })? {
                Answer::Tickets(page) if page.is_empty() => return Ok(all),
                Answer::Tickets(page) => all.extend(page),
                other => return self.strange(&other),
            }
        }
    }

    fn ask_about_one(&mut self, request: &Request) -> Result<Outcome, ClientError> {
        match self.ask(request)? {
            Answer::Outcomes(outcomes) if outcomes.len() == 1 => {
                Ok(outcomes.into_iter().next().unwrap_or(Outcome::NotAway))
            }
            other => self.strange(&other),
        }
    }
}
