package fngwruntime

import (
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// directConn is a connection that the language does not know: for one that it knows it wakes a thread at whatever arrives, also
// when another thread waits for that already. A read takes its thread along while calls follow each other closely, because
// to park a goroutine and to wake it costs several calls of the system. Else it is parked by way of a gate: a set of
// descriptors that the language waits for, and that has the connection in it only meanwhile.
type directConn struct {
	descriptor int
	mayKeep    bool
	// The socket was told to take large answers.
	isRoomy bool
	set     int
	isInSet bool
	gate    *os.File
	waits   syscall.RawConn
}

// newConnection takes a connection out of the language's hands where that brings something: with one processor a thread that
// waits would hold up others until the scheduler notices.
func newConnection(conn net.Conn) connection {
	if descriptor, err := duplicateOf(conn); err == nil {
		if direct := newDirect(descriptor); direct != nil {
			conn.Close()
			return direct
		}
		_ = syscall.Close(descriptor)
	}
	return parkedConn{conn}
}

// newDirect is nil, and has changed nothing, where that brings nothing or the system does not allow it.
func newDirect(descriptor int) *directConn {
	if runtime.GOMAXPROCS(0) == 1 || syscall.SetNonblock(descriptor, true) != nil {
		return nil
	}
	syscall.CloseOnExec(descriptor)
	return &directConn{descriptor: descriptor}
}

// openGate makes the gate when somebody has to wait for the first time.
func (d *directConn) openGate() error {
	set, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	_ = syscall.SetNonblock(set, true)
	gate := os.NewFile(uintptr(set), "gate")
	if d.waits, err = gate.SyscallConn(); err != nil {
		gate.Close()
		return err
	}
	d.set, d.gate = set, gate
	return nil
}

func duplicateOf(conn net.Conn) (duplicate int, err error) {
	from, isFile := conn.(syscall.Conn)
	if !isFile {
		return -1, syscall.ENOTSUP
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return -1, err
	}
	problem := raw.Control(func(descriptor uintptr) {
		// A handler's package may start programs by now: none of them may have it.
		syscall.ForkLock.RLock()
		if duplicate, err = syscall.Dup(int(descriptor)); err == nil {
			syscall.CloseOnExec(duplicate)
		}
		syscall.ForkLock.RUnlock()
	})
	if err == nil {
		err = problem
	}
	return duplicate, err
}

func (d *directConn) keepThread(may bool) { d.mayKeep = may }

func (d *directConn) Read(to []byte) (int, error) {
	if d.gate == nil {
		// What a worker begins with is there already.
		if count, err := d.look(to); err != syscall.EAGAIN {
			return toRead(count, err)
		}
	}
	if !d.mayKeep && d.enterSet() {
		count, err := 0, error(nil)
		// Nothing that arrives after it was looked for goes unnoticed: the connection is in the set by then.
		problem := d.waits.Read(func(uintptr) bool {
			count, err = d.look(to)
			return err != syscall.EAGAIN
		})
		if problem == nil {
			return toRead(count, err)
		}
		// The language cannot wait for the gate.
	}
	d.leaveSet()
	hasYielded := false
	for {
		count, err := d.look(to)
		if err != syscall.EAGAIN {
			return toRead(count, err)
		}
		if hasYielded {
			d.await(pollIn)
		} else {
			// Whoever waits for this processor may be about to send: then nobody has to be put to sleep and woken.
			_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
			hasYielded = true
		}
	}
}

// await waits until the connection can be read, or written. A read that waits is woken also when the other end has read.
func (d *directConn) await(event int16) {
	waiting := pollFd{fd: int32(d.descriptor), events: event}
	_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&waiting)), 1, 0, 0, 0, 0)
}

// look reads what is there, and does not wait.
func (d *directConn) look(to []byte) (int, error) {
	for {
		count, _, problem := syscall.RawSyscall(syscall.SYS_READ, uintptr(d.descriptor), uintptr(unsafe.Pointer(&to[0])), uintptr(len(to)))
		switch problem {
		case 0:
			return int(count), nil
		case syscall.EINTR:
		default:
			return 0, problem
		}
	}
}

func toRead(count int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	if count == 0 {
		return 0, io.EOF
	}
	return count, nil
}

func (d *directConn) enterSet() bool {
	if d.gate == nil && d.openGate() != nil {
		return false
	}
	if !d.isInSet {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN}
		d.isInSet = syscall.EpollCtl(d.set, syscall.EPOLL_CTL_ADD, d.descriptor, &event) == nil
	}
	return d.isInSet
}

func (d *directConn) leaveSet() {
	if d.isInSet {
		d.isInSet = false
		_ = syscall.EpollCtl(d.set, syscall.EPOLL_CTL_DEL, d.descriptor, nil)
	}
}

func (d *directConn) Write(from []byte) (int, error) { return len(from), d.writeBoth(from, nil) }

func (d *directConn) writeBoth(first, second []byte) error {
	if !d.isRoomy && len(second) > 0 {
		d.isRoomy = true
		makeRoomy(d.descriptor)
	}
	for len(first)+len(second) > 0 {
		var parts [2]syscall.Iovec
		used := 0
		for _, part := range [2][]byte{first, second} {
			if len(part) > 0 {
				parts[used].Base = &part[0]
				parts[used].SetLen(len(part))
				used++
			}
		}
		count, _, problem := syscall.RawSyscall(
			syscall.SYS_WRITEV, uintptr(d.descriptor), uintptr(unsafe.Pointer(&parts)), uintptr(used))
		if problem == syscall.EAGAIN {
			d.await(pollOut)
			continue
		}
		if problem == syscall.EINTR {
			continue
		}
		if problem != 0 {
			return problem
		}
		written := int(count)
		if written < len(first) {
			first = first[written:]
			continue
		}
		first, second = nil, second[written-len(first):]
	}
	return nil
}

// makeRoomy lets a unix socket take large answers. One of TCP finds out by itself what it has to take.
func makeRoomy(descriptor int) {
	at, err := syscall.Getsockname(descriptor)
	if _, isUnix := at.(*syscall.SockaddrUnix); err == nil && isUnix {
		_ = syscall.SetsockoptInt(descriptor, syscall.SOL_SOCKET, syscall.SO_SNDBUF, sentBytes)
	}
}

func (d *directConn) Close() error {
	if d.gate != nil {
		d.gate.Close()
	}
	return syscall.Close(d.descriptor)
}
