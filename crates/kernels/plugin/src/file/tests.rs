use crate::code::{Kind, Mark};
use crate::counts::{Block, Recorder};

/// One window with a call in it, as it is written.
#[test]
fn as_documented() {
    let mut recorder = Recorder::default();
    let block = |number, start, sizes: &[u8]| -> &'static Block {
        Box::leak(Box::new(Block {
            number,
            start,
            sizes: sizes.to_vec(),
            last: Kind::Other,
        }))
    };
    let program = block(0, 0x40_1000, &[7, 2]);
    let caller = block(1, 0xffff_ffff_8100_0000, &[5, 5]);
    let unused = block(2, 0xffff_ffff_8200_0000, &[1]);
    let callee = block(3, 0xffff_ffff_810e_bc60, &[4, 2, 1]);
    recorder.mark(Mark::Cell, 0);
    recorder.mark(Mark::Digit(3), 0);
    recorder.starts(unused, 0);
    recorder.starts(program, 1);
    recorder.mark(Mark::Begin(0), 1);
    recorder.starts(caller, 3);
    recorder.call(0xffff_c900_000f_bf50, 0xffff_ffff_8100_0005);
    recorder.starts(callee, 5);
    recorder.ret(0xffff_c900_000f_bf50);
    recorder.starts(program, 8);
    recorder.mark(Mark::End, 8);
    recorder.mark(Mark::End, 8);
    recorder.mark(Mark::Begin(1), 9);
    recorder.finish();
    let mut written = Vec::new();
    super::write(&mut written, &recorder, &[program, caller, unused, callee]).unwrap();
    let expected = "stopgap.plugin/2\n\
        window 3 0\n\
        took 6 1\n\
        ran 1 - ffffffff81000000 5 5\n\
        ran 1 ffffffff81000005 ffffffff810ebc60 4 2 1\n\
        window 3 1\n\
        torn 1\n\
        astray 1\n\
        end 8\n";
    assert_eq!(String::from_utf8(written).unwrap(), expected);
}

/// A full disk is an error, not a panic.
#[test]
fn what_cannot_be_written_is_said() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(super::write(&mut Full, &Recorder::default(), &[]).is_err());
}
