//! Memory that the GPU cannot have, and so lies in the host's: made on the NUMA node that is near to the GPU, mapped at the
//! same addresses as any other, used over the bus. The daemon says how much of it there may be, and may have
//! it change places with memory on the device (`homes`), but for what the program named.

use std::ffi::c_int;

use cuda::CUresult;
use cuda::types::CUdevice_attribute;

use super::physical::Refused;
use crate::notice::OnceNotice;
use crate::session::Session;

/// The NUMA node of the host that is nearest to the session's GPU. Where the machine has none, that is 0.
pub(crate) fn near_node(session: &Session) -> c_int {
    let mut node: c_int = 0;
    // SAFETY: the driver writes one number.
    let result = unsafe {
        (session.driver.cuDeviceGetAttribute)(&mut node, CUdevice_attribute::HOST_NUMA_ID, session.device)
    };
    if result == CUresult::SUCCESS { node.max(0) } else { 0 }
}

/// The driver makes no memory there: to the program that is the same as having none.
pub(super) fn refused(node: c_int, refused: Refused) -> Refused {
    static FAILED: OnceNotice = OnceNotice::new();
    if refused.code != CUresult::OUT_OF_MEMORY {
        FAILED.notice(format_args!(
            "no memory beyond the GPU: {} on node {node} of the host failed: {}",
            refused.call, refused.code
        ));
    }
    Refused { code: CUresult::OUT_OF_MEMORY, ..refused }
}
