//! What this process published, and what it has open of others: pure bookkeeping.
//!
//! Opened once more, memory is at the same address, and is there until it was closed as often.

use std::collections::BTreeMap;

use cuda::CUresult;
use cuda::types::CUcontext;
use wire::{HandleId, Token};

use super::name::Name;

/// Memory of another process that is mapped here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    context: CUcontext,
    /// What it is.
    pub(crate) token: Token,
    /// Where it begins.
    pub(crate) start: u64,
    /// The sizes of its handles.
    pub(crate) sizes: Vec<u64>,
    /// How often each allocation in it is open, with its size.
    open: BTreeMap<u64, (u64, u32)>,
}

impl Opened {
    pub(super) fn new(context: CUcontext, token: Token, start: u64, sizes: Vec<u64>) -> Self {
        Self { context, token, start, sizes, open: BTreeMap::new() }
    }

    /// All of it.
    pub(super) fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Where an allocation is; None if it does not lie in here.
    pub(super) fn place(&self, name: &Name) -> Option<u64> {
        let end = name.offset.checked_add(name.bytes)?;
        (end <= self.bytes()).then(|| self.start + name.offset)
    }

    fn count_up(&mut self, start: u64, bytes: u64) {
        self.open.entry(start).or_insert((bytes, 0)).1 += 1;
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Ranges of this process by their start, each with its first handle, whose number is never used again.
    published: BTreeMap<u64, (HandleId, Token)>,
    opened: Vec<Opened>,
    /// Of what is published, what a new daemon does not know yet: its start, its first handle, its token.
    to_publish: Vec<(u64, HandleId, Token)>,
}

impl Names {
    /// A new daemon is there, and knows no names. Returns what is open of others, each as often as it is.
    pub(crate) fn begin_again(&mut self) -> Vec<Token> {
        let published = self.published.iter();
        self.to_publish = published.map(|(&start, &(first, token))| (start, first, token)).collect();
        self.opened.iter().map(|opened| opened.token).collect()
    }

    /// The next that the new daemon is to be told of.
    pub(super) fn next_to_publish(&mut self) -> Option<(u64, HandleId, Token)> {
        self.to_publish.pop()
    }

    /// It could not be told for the moment.
    pub(super) fn publish_later(&mut self, start: u64, first: HandleId, token: Token) {
        self.to_publish.insert(0, (start, first, token));
    }

    /// The token of a range, if it is published.
    pub(super) fn published(&self, start: u64, first: HandleId) -> Option<Token> {
        self.published.get(&start).filter(|(handle, _)| *handle == first).map(|(_, token)| *token)
    }

    /// A range is published. Those that are no longer there are forgotten.
    pub(super) fn note_published(
        &mut self,
        start: u64,
        first: HandleId,
        token: Token,
        is_there: impl Fn(HandleId) -> bool,
    ) {
        if self.published.insert(start, (first, token)) != Some((first, token)) {
            self.published.retain(|_, (handle, _)| is_there(*handle));
        }
    }

    /// Is it this process that published it?
    pub(super) fn is_own(&self, token: Token) -> bool {
        self.published.values().any(|(_, own)| *own == token)
    }

    /// Opens an allocation in memory that a context has open already; None if it has not.
    pub(super) fn open_again(&mut self, context: CUcontext, name: &Name) -> Option<Result<u64, CUresult>> {
        let mut all = self.opened.iter_mut();
        let opened = all.find(|opened| opened.context == context && opened.token == name.token)?;
        Some(opened.place(name).ok_or(CUresult::INVALID_VALUE).inspect(|&start| {
            opened.count_up(start, name.bytes);
        }))
    }

    /// Adds what was opened, of which the allocation lies in it. Returns where that is.
    pub(super) fn add(&mut self, mut opened: Opened, name: &Name) -> u64 {
        let start = opened.start + name.offset;
        opened.count_up(start, name.bytes);
        self.opened.push(opened);
        start
    }

    /// Whether anything of others is open.
    pub(crate) fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// The context that what is open at an address was opened in; None if nothing is.
    pub(super) fn context_of(&self, address: u64) -> Option<CUcontext> {
        self.opened.iter().find(|opened| opened.open.contains_key(&address)).map(|opened| opened.context)
    }

    /// Closes what is open at an address, once. Returns the memory if nothing in it is open any more: whoever gets it lets it
    /// go.
    pub(super) fn close(&mut self, address: u64) -> Option<Opened> {
        let at = self.opened.iter().position(|opened| opened.open.contains_key(&address))?;
        let opened = &mut self.opened[at];
        let (_, count) = opened.open.get_mut(&address)?;
        *count -= 1;
        if *count == 0 {
            opened.open.remove(&address);
        }
        opened.open.is_empty().then(|| self.opened.swap_remove(at))
    }

    /// A context is gone. Returns what was open in it.
    pub(super) fn end(&mut self, context: CUcontext) -> Vec<Opened> {
        let (ended, left) =
            std::mem::take(&mut self.opened).into_iter().partition(|opened| opened.context == context);
        self.opened = left;
        ended
    }

    /// The opened allocation that an address lies in: where it begins, its size, and its context.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, u64, CUcontext)> {
        self.opened.iter().find_map(|opened| {
            let (start, (bytes, _)) = opened.open.range(..=address).next_back()?;
            (address - start < *bytes).then_some((*start, *bytes, opened.context))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token(7);

    fn context(number: usize) -> CUcontext {
        CUcontext(std::ptr::without_provenance_mut(number))
    }

    fn name(offset: u64, bytes: u64) -> Name {
        Name { token: TOKEN, offset, bytes }
    }

    fn opened(context: CUcontext, start: u64) -> Opened {
        Opened::new(context, TOKEN, start, vec![0x1000, 0x2000])
    }

    #[test]
    fn memory_is_open_until_all_in_it_was_closed_as_often() {
        let mut names = Names::default();
        let (one, two) = (context(1), context(2));
        assert_eq!(names.open_again(one, &name(0, 16)), None);
        assert_eq!(names.add(opened(one, 0x10000), &name(0x200, 16)), 0x10200);
        assert_eq!(names.open_again(two, &name(0x200, 16)), None, "another context has none of it");
        assert_eq!(names.open_again(one, &name(0x200, 16)), Some(Ok(0x10200)));
        assert_eq!(names.open_again(one, &name(0x2000, 0x1000)), Some(Ok(0x12000)));
        assert_eq!(names.context_of(0x10200), Some(one));
        assert_eq!(names.context_of(0x10208), None, "not its beginning");
        assert!(names.has_opened());
        assert!(names.close(0x10208).is_none());
        assert!(names.close(0x10200).is_none());
        assert!(names.close(0x12000).is_none());
        let gone = names.close(0x10200).unwrap();
        assert_eq!((gone.start, gone.bytes()), (0x10000, 0x3000));
        assert!(!names.has_opened());
        assert_eq!(names.context_of(0x10200), None);
    }

    #[test]
    fn what_does_not_lie_in_it_is_refused() {
        let mut names = Names::default();
        names.add(opened(context(1), 0x10000), &name(0, 16));
        for (offset, bytes) in [(0x3000, 1), (0, 0x3001), (u64::MAX, 16), (1, u64::MAX)] {
            let refused = Some(Err(CUresult::INVALID_VALUE));
            assert_eq!(names.open_again(context(1), &name(offset, bytes)), refused);
            assert_eq!(opened(context(1), 0x10000).place(&name(offset, bytes)), None);
        }
        assert!(names.close(0x10000).is_some(), "a refusal counts for nothing");
    }

    #[test]
    fn a_context_takes_its_own_with_it() {
        let mut names = Names::default();
        names.add(opened(context(1), 0x10000), &name(0, 16));
        names.add(opened(context(2), 0x20000), &name(0, 16));
        assert_eq!(names.around(0x10008), Some((0x10000, 16, context(1))));
        assert_eq!(names.around(0x10010), None);
        assert_eq!(names.end(context(1)).len(), 1);
        assert_eq!(names.around(0x10008), None);
        assert_eq!(names.context_of(0x20000), Some(context(2)));
    }

    #[test]
    fn a_new_daemon_is_told_of_every_name_and_of_what_is_open() {
        let mut names = Names::default();
        names.note_published(0x1000, HandleId(1), TOKEN, |_| true);
        names.note_published(0x5000, HandleId(2), Token(8), |_| true);
        names.add(Opened::new(context(1), Token(9), 0x10000, vec![0x1000]), &name(0, 16));
        assert_eq!(names.next_to_publish(), None, "the daemon knows them");
        assert_eq!(names.begin_again(), [Token(9)]);
        let first = names.next_to_publish().unwrap();
        names.publish_later(first.0, first.1, first.2);
        let mut told = [(); 2].map(|()| names.next_to_publish().unwrap());
        told.sort_unstable_by_key(|(start, ..)| *start);
        assert_eq!(told, [(0x1000, HandleId(1), TOKEN), (0x5000, HandleId(2), Token(8))]);
        assert_eq!(names.next_to_publish(), None);
    }

    #[test]
    fn a_range_that_is_gone_is_not_published_any_more() {
        let mut names = Names::default();
        let (first, second) = (HandleId(1), HandleId(2));
        names.note_published(0x1000, first, TOKEN, |_| true);
        assert_eq!(names.published(0x1000, first), Some(TOKEN));
        assert_eq!(names.published(0x1000, second), None, "another range at the same address");
        assert!(names.is_own(TOKEN));
        names.note_published(0x5000, second, Token(8), |handle| handle == second);
        assert!(!names.is_own(TOKEN));
        assert!(names.is_own(Token(8)));
    }
}
