use super::*;
use vgpu_messages::SessionId;
use vgpu_messages::spec::Costs;

struct Caller {
    rm: Rm,
    costs: Costs,
}

impl Caller {
    fn new() -> Self {
        let mut rm = Rm::default();
        rm.open(FileKey(1), SessionId(1));
        rm.open(FileKey(2), SessionId(2));
        Self { rm, costs: Costs::default() }
    }

    fn call(&mut self, file: u64, request: u32, words: &[u32], parameters: &mut [u8]) -> (Vec<u8>, Called) {
        let mut argument: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let surroundings = Surroundings { costs: &self.costs, uuids: &[[1; 16], [2; 16]] };
        let called =
            call(&mut self.rm, FileKey(file), request, &mut argument, parameters, &surroundings).unwrap();
        (argument, called)
    }

    /// Status and handle.
    fn alloc(
        &mut self,
        file: u64,
        [client, parent, handle, class]: [u32; 4],
        parameters: &[u32],
    ) -> (u32, u32) {
        let mut parameters: Vec<u8> = parameters.iter().flat_map(|word| word.to_le_bytes()).collect();
        let words = [client, parent, handle, class, 8, 0, parameters.len() as u32, 0];
        let (argument, _) = self.call(file, 0xc020_462b, &words, &mut parameters);
        (word(&argument, 28), word(&argument, 8))
    }

    fn control(
        &mut self,
        file: u64,
        [client, object, command]: [u32; 3],
        parameters: &mut [u8],
    ) -> (u32, Called) {
        let words = [client, object, command, 0, 8, 0, parameters.len() as u32, 0];
        let (argument, called) = self.call(file, 0xc020_462a, &words, parameters);
        (word(&argument, 28), called)
    }

    /// A client with a device, a subdevice and a group with two channels.
    fn group(&mut self) -> [u32; 5] {
        let (_, client) = self.alloc(1, [0, 0, 0, 0x41], &[]);
        let (_, device) = self.alloc(1, [client, client, 0, 0x80], &[1]);
        let (_, subdevice) = self.alloc(1, [client, device, 0, 0x2080], &[]);
        let (_, group) = self.alloc(1, [client, device, 0, 0xa06c], &[0, 0, 0, 1]);
        let (_, channel) = self.alloc(1, [client, group, 0, 0xc86f], &[]);
        self.alloc(1, [client, group, 0, 0xc86f], &[]);
        [client, device, subdevice, group, channel]
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn both_forms_of_an_allocation_are_taken_and_their_status_is_where_it_belongs() {
    let mut caller = Caller::new();
    let (argument, _) = caller.call(1, 0xc030_462b, &[0, 0, 7, 0x41, 0, 0, 0, 0, 0, 0, 99, 0], &mut []);
    assert_eq!((word(&argument, 8), word(&argument, 40)), (7, 0));
    let (argument, _) = caller.call(1, 0xc030_462b, &[0, 0, 7, 0x41, 0, 0, 0, 0, 0, 0, 99, 0], &mut []);
    assert_eq!(word(&argument, 40), status::INVALID_ARGUMENT, "the handle is in use");
    assert!(
        call(
            &mut caller.rm,
            FileKey(1),
            0xc020_4629,
            &mut [0; 32],
            &mut [],
            &Surroundings { costs: &Costs::default(), uuids: &[[1; 16], [2; 16]] }
        )
        .is_none()
    );
}

#[test]
fn objects_are_reached_by_their_own_file_only() {
    let mut caller = Caller::new();
    let [client, device, _, group, _] = caller.group();
    assert_eq!(caller.alloc(2, [client, device, 0, 0xa06c], &[0, 0, 0, 1]).0, status::INVALID_CLIENT);
    assert_eq!(caller.alloc(1, [client, 0x999, 0, 0xa06c], &[0, 0, 0, 1]).0, status::OBJECT_NOT_FOUND);
    assert_eq!(caller.alloc(1, [client, client, 0, 0x80], &[2]).0, status::INVALID_ARGUMENT, "two GPUs");
    assert_eq!(caller.control(2, [client, group, 0xa06c_0104], &mut [0; 8]).0, status::INVALID_CLIENT);
}

#[test]
fn slices_are_set_and_read_with_exact_sizes() {
    let mut caller = Caller::new();
    let [client, _, _, group, _] = caller.group();
    let mut slice = 500u64.to_le_bytes();
    let (status, called) = caller.control(1, [client, group, 0xa06c_0103], &mut slice);
    let group_key = GroupKey { client, handle: group };
    let effect = Effect::Slice { group: group_key, device: DeviceId(1), slice: Nanos(500_000) };
    assert_eq!((status, called.effects), (0, vec![effect]));
    let mut read = [0; 8];
    assert_eq!(caller.control(1, [client, group, 0xa06c_0104], &mut read).0, 0);
    assert_eq!(u64::from_le_bytes(read), 500);
    assert_eq!(caller.control(1, [client, group, 0xa06c_0103], &mut [0; 4]).0, status::INVALID_ARGUMENT);
    assert_eq!(
        caller.control(1, [client, group, 0xa06c_0107], &mut [0; 4]).0,
        status::INSUFFICIENT_PERMISSIONS
    );
    assert_eq!(caller.control(1, [client, group, 0xa06c_0199], &mut []).0, status::NOT_SUPPORTED);
    assert_eq!(caller.control(1, [client, 5, 0xa06c_0104], &mut read).0, status::OBJECT_NOT_FOUND);
}

#[test]
fn a_channel_born_while_its_group_is_off_brings_nobody_back() {
    let mut caller = Caller::new();
    let [client, _, _, group, first] = caller.group();
    let key = GroupKey { client, handle: group };
    let off = |channels: Vec<(u32, u32)>| Grip { off: true, channels };
    let all: Vec<(u32, u32)> = vec![(client, first), (client, first + 1)];
    assert_eq!(caller.rm.grip(&off(all[..1].to_vec())), [], "one of two");
    assert_eq!(caller.rm.grip(&off(all.clone())), [(key, true)]);
    caller.alloc(1, [client, group, 0, 0xc86f], &[]);
    assert!(caller.rm.group(key).unwrap().frozen);
}

#[test]
fn a_group_is_back_when_a_channel_was_put_back_as_often_as_it_was_taken_off() {
    let mut caller = Caller::new();
    let [client, _, _, group, first] = caller.group();
    let key = GroupKey { client, handle: group };
    let both = |off| Grip { off, channels: vec![(client, first), (client, first + 1)] };
    assert_eq!(caller.rm.grip(&both(false)), [], "never off");
    assert_eq!(caller.rm.grip(&both(true)), [(key, true)]);
    assert_eq!(caller.rm.grip(&both(true)), [], "off already");
    assert_eq!(caller.rm.grip(&both(false)), [], "once more");
    assert_eq!(caller.rm.grip(&both(false)), [(key, false)]);
    assert_eq!(caller.rm.grip(&both(false)), [], "back already, which is not counted");
    assert_eq!(caller.rm.grip(&both(true)), [(key, true)]);
}

#[test]
fn what_is_freed_takes_all_under_it_along() {
    let mut caller = Caller::new();
    let [client, device, _, group, channel] = caller.group();
    let gone = Effect::Gone { group: GroupKey { client, handle: group }, device: DeviceId(1) };
    let (argument, called) = caller.call(1, 0xc010_4629, &[client, client, device, 0], &mut []);
    assert_eq!((word(&argument, 12), called.effects), (0, vec![gone]));
    let (argument, _) = caller.call(1, 0xc010_4629, &[client, group, channel, 0], &mut []);
    assert_eq!(word(&argument, 12), status::OBJECT_NOT_FOUND);
    caller.group();
    assert_eq!(caller.rm.close(FileKey(1)).len(), 1);
    assert_eq!(caller.rm.clients(), 0);
}

#[test]
fn channels_of_other_files_cannot_be_listed_among_ones_own() {
    let mut caller = Caller::new();
    let [client, _, subdevice, _, channel] = caller.group();
    let (_, foreign) = caller.alloc(2, [0, 0, 0, 0x41], &[]);
    let (_, device) = caller.alloc(2, [foreign, foreign, 0, 0x80], &[1]);
    let (_, group) = caller.alloc(2, [foreign, device, 0, 0xa06c], &[0, 0, 0, 1]);
    let (_, theirs) = caller.alloc(2, [foreign, group, 0, 0xc86f], &[]);
    let mut disable = |list: &[(u32, u32)]| {
        let mut parameters = [0; 536];
        (parameters[0], parameters[4]) = (1, list.len() as u8);
        for (place, (client, channel)) in list.iter().enumerate() {
            parameters[24 + 4 * place..28 + 4 * place].copy_from_slice(&client.to_le_bytes());
            parameters[280 + 4 * place..284 + 4 * place].copy_from_slice(&channel.to_le_bytes());
        }
        let (status, called) = caller.control(1, [client, subdevice, 0x2080_110b], &mut parameters);
        (status, called.grip.is_some())
    };
    assert_eq!(disable(&[(client, channel)]), (0, true));
    assert_eq!(disable(&[(client, channel), (foreign, theirs)]), (status::INVALID_CLIENT, false));
    assert_eq!(disable(&[]), (status::INVALID_ARGUMENT, false));
}

#[test]
fn a_subdevice_says_which_gpu_it_is_on_and_nothing_else_does() {
    let mut caller = Caller::new();
    let [client, device, subdevice, ..] = caller.group();
    let mut parameters = [0; 268];
    parameters[4] = 2;
    assert_eq!(caller.control(1, [client, subdevice, 0x2080_014a], &mut parameters).0, status::OK);
    assert_eq!((word(&parameters, 8), &parameters[12..28]), (16, &[2; 16][..]));
    assert_eq!(caller.control(1, [client, device, 0x2080_014a], &mut parameters).0, status::OBJECT_NOT_FOUND);
    assert_eq!(
        caller.control(2, [client, subdevice, 0x2080_014a], &mut parameters).0,
        status::INVALID_CLIENT
    );
    assert_eq!(
        caller.control(1, [client, subdevice, 0x2080_014a], &mut [0; 264]).0,
        status::INVALID_ARGUMENT
    );
    assert_eq!(caller.control(1, [client, subdevice, 0x2080_014a], &mut [0; 268]).0, status::NOT_SUPPORTED);
}
