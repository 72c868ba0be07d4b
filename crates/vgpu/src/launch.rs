//! Launching kernels.

use std::ffi::{c_uint, c_void};

use cuda::CUresult;
use cuda::types::{CUfunction, CUlaunchAttribute, CUlaunchConfig, CUstream};
use vgpu_messages::stream::StreamRef;
use vgpu_messages::work::{Launch, Work};

use crate::argument::In;
use crate::context::current;
use crate::guard::{Outcome, stream_api};
use crate::module::function::resolve;
use crate::module::table::Function;
use crate::stream;

/// Keys of the list of extra arguments.
const EXTRA_END: u64 = 0;
const EXTRA_BUFFER: u64 = 1;
const EXTRA_BUFFER_BYTES: u64 = 2;
/// No such list has more keys.
const EXTRA_MAX: u64 = 8;

const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const THREADS_MAX: u64 = 1024;

/// Numbers of launch attributes.
const ATTRIBUTE_COOPERATIVE: u32 = 2;
const ATTRIBUTE_CLUSTER: u32 = 4;

/// What a program says of a launch.
pub(crate) struct Wanted {
    pub(crate) function: CUfunction,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    /// An address for each parameter, or
    pub(crate) parameters: In<u64>,
    /// all of them in one buffer.
    pub(crate) extra: In<u64>,
    pub(crate) cooperative: bool,
}

/// The launch, with its parameters taken from where the program has them now.
pub(crate) fn prepare(wanted: &Wanted) -> Result<Launch, CUresult> {
    let Wanted { function, grid, block, shared_bytes, parameters, extra, cooperative } = *wanted;
    let (id, known) = resolve(function)?;
    let fits =
        |size: [u32; 3], most: [u32; 3]| size.iter().zip(most).all(|(size, most)| (1..=most).contains(size));
    let threads: u64 = block.iter().map(|size| u64::from(*size)).product();
    if !fits(grid, GRID_MAX) || !fits(block, BLOCK_MAX) || threads > THREADS_MAX {
        return Err(CUresult::INVALID_VALUE);
    }
    let parameters = match (parameters.is_null(), extra.is_null()) {
        (false, true) => from_addresses(&known, parameters)?,
        (true, false) => from_buffer(extra)?,
        (true, true) if known.parameters.is_empty() => Vec::new(),
        _ => return Err(CUresult::INVALID_VALUE),
    };
    Ok(Launch { function: id, grid, block, shared_bytes, parameters, cooperative })
}

fn from_addresses(known: &Function, addresses: In<u64>) -> Result<Vec<u8>, CUresult> {
    let bytes = known.parameters.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
    let mut all = vec![0; bytes as usize];
    let addresses = addresses.list(known.parameters.len())?;
    for ((offset, size), address) in known.parameters.iter().zip(addresses) {
        let (start, end) = (*offset as usize, (offset + size) as usize);
        all[start..end].copy_from_slice(&In::<u8>::at(address).list(*size as usize)?);
    }
    Ok(all)
}

fn from_buffer(extra: In<u64>) -> Result<Vec<u8>, CUresult> {
    let (mut buffer, mut bytes) = (None, None);
    let pair = |index: u64| In::<u64>::at(extra.address() + index * 8).get();
    for index in (0..EXTRA_MAX).step_by(2) {
        match pair(index)? {
            EXTRA_END => break,
            EXTRA_BUFFER => buffer = Some(pair(index + 1)?),
            EXTRA_BUFFER_BYTES => bytes = Some(In::<usize>::at(pair(index + 1)?).get()?),
            _ => return Err(CUresult::INVALID_VALUE),
        }
    }
    match (buffer, bytes) {
        (Some(buffer), Some(bytes)) if bytes <= vgpu_messages::PARAMETER_BYTES_MAX => {
            In::<u8>::at(buffer).list(bytes)
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn launch(wanted: &Wanted, stream: CUstream, default: StreamRef) -> Outcome {
    current::id()?;
    let launch = prepare(wanted)?;
    stream::give(Work::Launch(launch), stream, default)
}

/// Whether attributes ask for a cooperative launch. Clusters of more than one block are not to be had.
fn is_cooperative(config: &CUlaunchConfig) -> Result<bool, CUresult> {
    let list: In<CUlaunchAttribute> = In::at(config.attributes.expose_provenance() as u64);
    let mut cooperative = false;
    for attribute in list.list(config.attribute_count as usize)? {
        match (attribute.id, attribute.value) {
            (ATTRIBUTE_COOPERATIVE, [value, ..]) => cooperative = value != 0,
            (ATTRIBUTE_CLUSTER, [x, y, z, ..]) if x.max(1) * y.max(1) * z.max(1) > 1 => {
                return Err(CUresult::NOT_SUPPORTED);
            }
            _ => {}
        }
    }
    Ok(cooperative)
}

stream_api! {
    |default| cuLaunchKernel / cuLaunchKernel_ptsz(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        parameters: In<u64>,
        extra: In<u64>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let wanted = Wanted { function, grid, block, shared_bytes, parameters, extra, cooperative: false };
        launch(&wanted, stream, default)
    }

    |default| cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        parameters: In<u64>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let extra = In::at(0);
        let wanted = Wanted { function, grid, block, shared_bytes, parameters, extra, cooperative: true };
        launch(&wanted, stream, default)
    }

    |default| cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: In<CUlaunchConfig>,
        function: CUfunction,
        parameters: In<u64>,
        extra: In<u64>,
    ) {
        current::id()?;
        let config = config.get()?;
        let cooperative = is_cooperative(&config)?;
        let CUlaunchConfig { grid, block, shared_bytes, stream, .. } = config;
        launch(&Wanted { function, grid, block, shared_bytes, parameters, extra, cooperative }, stream, default)
    }
}

/// For structures that hold it as a pointer.
pub(crate) fn addresses(list: *const *const c_void) -> In<u64> {
    In::at(list.expose_provenance() as u64)
}
