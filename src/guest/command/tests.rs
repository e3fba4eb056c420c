use super::super::terminal;
use super::super::wire::Size;
use super::*;

#[test]
fn what_a_program_wrote_last_is_read_though_another_holds_its_terminal() {
    let (ours, its) = terminal::open(Size { cols: 80, rows: 24 }).expect("a terminal");
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK).expect("set");
    let started = Started { pid: 0, output: [Some(ours), None], input: None };
    let screen = Terminal::new(Size { cols: 80, rows: 24 }, 0, Err(Errno::MFILE.into()));
    let mut command = Command::new(1, &Run::default(), started, Some(screen));
    rustix::io::write(&its, &[b'x'; 3000]).expect("written");
    // The system carries it over in its own time.
    let waits = |c: &Command| rustix::io::ioctl_fionread(c.outputs[0].from.as_ref().expect("open"));
    while waits(&command) != Ok(3000) {
        std::thread::yield_now();
    }
    assert!(command.hang_up());
    assert_eq!(command.ends()[0], 3000);
    assert_eq!(command.read(0), Read::End, "it is read no more");
}
