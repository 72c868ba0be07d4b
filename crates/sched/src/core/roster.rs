//! GPUs, tenants and jobs by number. Numbers count up from small ones, so a plain list finds them at once.

use crate::{GpuId, JobId, TenantId};
use std::marker::PhantomData;

/// The largest number of a tenant or job: a list this long is what the memory of the core is bounded by.
pub const NUMBER_MAX: u64 = 1 << 24;

/// Something with a number.
pub(super) trait Number: Copy {
    fn number(self) -> u64;
    fn numbered(number: u64) -> Self;
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Roster<Id, T> {
    all: Vec<Option<Box<T>>>,
    by: PhantomData<Id>,
}

impl<Id, T> Default for Roster<Id, T> {
    fn default() -> Self {
        Self { all: Vec::new(), by: PhantomData }
    }
}

impl<Id: Number, T> Roster<Id, T> {
    pub(super) fn get(&self, id: Id) -> Option<&T> {
        self.all.get(index(id)?)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.all.get_mut(index(id)?)?.as_deref_mut()
    }

    pub(super) fn contains(&self, id: Id) -> bool {
        self.get(id).is_some()
    }

    /// False if the number is taken or too large.
    pub(super) fn insert(&mut self, id: Id, new: T) -> bool {
        let Some(at) = index(id) else { return false };
        if at >= self.all.len() {
            self.all.resize_with(at + 1, || None);
        }
        if self.all[at].is_some() {
            return false;
        }
        self.all[at] = Some(Box::new(new));
        true
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<T> {
        let gone = self.all.get_mut(index(id)?)?.take()?;
        while self.all.last().is_some_and(Option::is_none) {
            self.all.pop();
        }
        Some(*gone)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        let numbered = self.all.iter().enumerate();
        numbered.filter_map(|(at, one)| Some((Id::numbered(at as u64), one.as_deref()?)))
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Id> {
        self.iter().map(|(id, _)| id)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.all.iter().flatten().map(|one| &**one)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut().flatten().map(|one| &mut **one)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Id, &mut T)> {
        let numbered = self.all.iter_mut().enumerate();
        numbered.filter_map(|(at, one)| Some((Id::numbered(at as u64), one.as_deref_mut()?)))
    }
}

fn index<Id: Number>(id: Id) -> Option<usize> {
    (id.number() <= NUMBER_MAX).then_some(id.number() as usize)
}

impl<Id: Number, T> FromIterator<(Id, T)> for Roster<Id, T> {
    fn from_iter<I: IntoIterator<Item = (Id, T)>>(all: I) -> Self {
        let mut roster = Self::default();
        for (id, one) in all {
            roster.insert(id, one);
        }
        roster
    }
}

impl Number for GpuId {
    fn number(self) -> u64 {
        u64::from(self.0)
    }
    fn numbered(number: u64) -> Self {
        Self(number as u16)
    }
}

impl Number for TenantId {
    fn number(self) -> u64 {
        self.0
    }
    fn numbered(number: u64) -> Self {
        Self(number)
    }
}

impl Number for JobId {
    fn number(self) -> u64 {
        self.0
    }
    fn numbered(number: u64) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_found_by_its_number_in_order() {
        let mut roster = Roster::default();
        for job in [7, 0, 3].map(JobId) {
            assert!(roster.insert(job, job.0 * 10));
        }
        assert!(!roster.insert(JobId(3), 99), "it is taken");
        *roster.get_mut(JobId(7)).unwrap() += 1;
        roster.iter_mut().for_each(|(_, value)| *value += 1);
        let all: Vec<_> = roster.iter().map(|(job, &value)| (job.0, value)).collect();
        assert_eq!(all, [(0, 1), (3, 31), (7, 72)]);
        assert_eq!(roster.remove(JobId(3)), Some(31));
        assert_eq!(roster.remove(JobId(3)), None);
        assert!(!roster.contains(JobId(3)) && roster.contains(JobId(7)));
    }

    #[test]
    fn the_list_is_no_longer_than_the_largest_number_that_is_there() {
        let mut roster = Roster::default();
        assert!(roster.insert(TenantId(5), ()));
        assert!(roster.insert(TenantId(NUMBER_MAX), ()));
        assert!(!roster.insert(TenantId(NUMBER_MAX + 1), ()));
        assert_eq!(roster.all.len() as u64, NUMBER_MAX + 1);
        roster.remove(TenantId(NUMBER_MAX));
        assert_eq!(roster.all.len(), 6);
        roster.remove(TenantId(5));
        assert_eq!(roster, Roster::default());
    }
}
