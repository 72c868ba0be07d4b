//! Pointers that programs pass, and what is done with them.
//!
//! A driver trusts its callers: a pointer that is not null is a place of the type that the function's signature
//! says. Exported functions take these types in place of raw pointers, so that this trust is in one file.

use std::ffi::{CStr, c_char, c_int};

use cuda::CUresult;

use crate::guard::Outcome;

/// A place for a result.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

// By hand: a derive would ask T for it.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// A place of this library.
    pub(crate) fn to(place: &mut T) -> Self {
        Self(place)
    }

    /// Whether there is none.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Refuses a place that is none.
    pub(crate) fn check(self) -> Outcome {
        if self.is_null() { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes; a place that is none is refused.
    pub(crate) fn set(self, value: T) -> Outcome {
        self.check()?;
        self.offer(value);
        Ok(())
    }

    /// Writes if there is a place.
    pub(crate) fn offer(self, value: T) {
        if !self.is_null() {
            // SAFETY: not null, so a place for a T: the module's documentation. C places need no alignment by this.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Reads what the caller left there.
    pub(crate) fn get(self) -> Result<T, CUresult>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: not null, so the caller's value: the module's documentation.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Writes a list to the places from here on; the caller has said that there are as many.
    pub(crate) fn set_all(self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().enumerate() {
            // SAFETY: as the caller of this function knows from its own caller.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
    }

    /// The same place as another type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The place of an element of a list that begins here.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// A place somewhere in the program's memory.
    pub(crate) fn somewhere(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    /// As a number.
    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }
}

/// A value, or the first of a list.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// A value of this library.
    pub(crate) fn of(value: &T) -> Self {
        Self(value)
    }

    /// Whether there is none.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The value; a null pointer is refused.
    pub(crate) fn get(self) -> Result<T, CUresult> {
        if self.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller's value: the module's documentation.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The list of this length; a null pointer is refused unless the list is empty.
    pub(crate) fn list(self, length: usize) -> Result<Vec<T>, CUresult> {
        if length == 0 {
            return Ok(Vec::new());
        }
        if self.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller's list of the length that it says.
        Ok((0..length).map(|index| unsafe { self.0.add(index).read_unaligned() }).collect())
    }

    /// As a number.
    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// A value somewhere in the program's memory.
    pub(crate) fn at(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance(address as usize))
    }
}

/// A text that ends with a zero.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The text; a null pointer is refused.
    pub(crate) fn get(self) -> Result<&'static CStr, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so a text that ends with a zero, and that lives until the function returns. No function
        // keeps it longer.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

/// Writes a text into a buffer of `length` bytes, cut to fit, with a closing zero.
pub(crate) fn write_text(to: Out<c_char>, length: c_int, text: &[u8]) -> Outcome {
    to.check()?;
    let room = usize::try_from(length).ok().filter(|room| *room > 0).ok_or(CUresult::INVALID_VALUE)?;
    let kept = &text[..text.len().min(room - 1)];
    to.set_all(kept.iter().map(|byte| *byte as c_char).chain([0]));
    Ok(())
}
