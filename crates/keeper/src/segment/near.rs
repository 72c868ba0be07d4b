//! Memory near to a NUMA node: a wish that stays with the memfd, whoever maps it.
//!
//! It is a wish and no condition: a node that is full would have the kernel end a process, and memory that is far is only
//! slower.

use super::mapping::Mapping;
use crate::names::Node;
use rustix::io::Errno;

/// Nodes that a mask has room for; the kernel's own most.
const NODES_MAX: usize = 1024;
const WORD_BITS: usize = u64::BITS as usize;

type Mask = [u64; NODES_MAX / WORD_BITS];

/// Has pages of a mapping come from this node, as long as it has some.
pub(super) fn prefer(mapping: &Mapping, node: Node) -> Result<(), Errno> {
    let mut mask: Mask = [0; _];
    let bit = usize::try_from(node.0).map_err(|_| Errno::INVAL)?;
    let word = mask.get_mut(bit / WORD_BITS).ok_or(Errno::INVAL)?;
    *word |= 1 << (bit % WORD_BITS);
    // SAFETY: the kernel reads `mask`, of as many bits as it is told, and sets a policy for our own mapping, whose contents
    // it does not change.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            mapping.start(),
            mapping.bytes(),
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            NODES_MAX,
            0,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::INVAL, Errno::from_raw_os_error)
}

#[cfg(test)]
const MPOL_F_NODE: libc::c_ulong = 1;
#[cfg(test)]
const MPOL_F_ADDR: libc::c_ulong = 2;

/// The node of the page at an offset.
#[cfg(test)]
pub(super) fn node_of(mapping: &Mapping, offset: u64) -> Result<Node, Errno> {
    let mut node: libc::c_int = -1;
    let address = mapping.start() as u64 + offset;
    let (no_mask, flags) = (std::ptr::null_mut::<u64>(), MPOL_F_NODE | MPOL_F_ADDR);
    // SAFETY: the kernel writes one number.
    let result = unsafe { libc::syscall(libc::SYS_get_mempolicy, &mut node, no_mask, 0, address, flags) };
    if result == 0 { Ok(Node(node as u32)) } else { Err(last_error()) }
}

/// The node that a mapping's pages are to come from.
#[cfg(test)]
pub(super) fn preferred_by(mapping: &Mapping) -> Result<Option<Node>, Errno> {
    let mut policy: libc::c_int = -1;
    let mut mask: Mask = [0; _];
    // SAFETY: the kernel writes one number, and as many bits as it is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &mut policy,
            mask.as_mut_ptr(),
            NODES_MAX,
            mapping.start(),
            MPOL_F_ADDR,
        )
    };
    if result != 0 {
        return Err(last_error());
    }
    let bit = (0..NODES_MAX).find(|bit| mask[bit / WORD_BITS] >> (bit % WORD_BITS) & 1 == 1);
    Ok(bit.filter(|_| policy == libc::MPOL_PREFERRED).map(|bit| Node(bit as u32)))
}
