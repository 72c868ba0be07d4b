//! `CUDA_VISIBLE_DEVICES`: which devices a program sees, and in which order.

use cuda::types::CUuuid;
use vgpu_messages::DeviceDescription;

/// The devices that the list names: by ordinal, or by a UUID or its beginning. The first entry that names none, or one for
/// the second time, ends the list. Without a list: all.
pub(super) fn choose(devices: Vec<DeviceDescription>, list: Option<&str>) -> Vec<DeviceDescription> {
    let Some(list) = list else { return devices };
    let mut chosen: Vec<DeviceDescription> = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let found = match entry.parse::<usize>() {
            Ok(ordinal) => devices.get(ordinal),
            Err(_) => by_uuid(&devices, entry),
        };
        match found {
            Some(device) if !chosen.contains(device) => chosen.push(device.clone()),
            _ => break,
        }
    }
    chosen
}

fn by_uuid<'a>(devices: &'a [DeviceDescription], start: &str) -> Option<&'a DeviceDescription> {
    let named = |device: &&DeviceDescription| CUuuid { bytes: device.uuid }.to_string().starts_with(start);
    let mut found = devices.iter().filter(named);
    let first = found.next().filter(|_| start.len() > "GPU-".len())?;
    // A beginning that fits two names neither.
    found.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: Option<&str>) -> Vec<u32> {
        let spec = vgpu_messages::Spec { gpus: 4, ..Default::default() };
        choose(spec.devices(), list).iter().map(|device| device.device.0).collect()
    }

    #[test]
    fn a_list_chooses_and_orders() {
        assert_eq!(chosen(None), [0, 1, 2, 3]);
        assert_eq!(chosen(Some("2,0")), [2, 0]);
        assert_eq!(chosen(Some("1,9,0")), [1]);
        assert_eq!(chosen(Some("1,1")), [1]);
        assert_eq!(chosen(Some("")), [0_u32; 0]);
        assert_eq!(chosen(Some("-1")), [0_u32; 0]);
    }

    #[test]
    fn a_uuid_or_its_beginning_names_a_device() {
        let spec = vgpu_messages::Spec { gpus: 4, ..Default::default() };
        let uuid = CUuuid { bytes: spec.devices()[3].uuid }.to_string();
        assert_eq!(chosen(Some(&uuid)), [3]);
        assert_eq!(chosen(Some(&uuid[..10])), [0_u32; 0], "all of them begin so");
        assert_eq!(chosen(Some("GPU-")), [0_u32; 0]);
    }
}
