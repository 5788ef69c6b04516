package fngwruntime

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	// Names that package syscall lacks on some machines.
	timerNonBlocking = syscall.O_NONBLOCK
	timerCloseOnExec = syscall.O_CLOEXEC
)

// timerSpec is what the system takes: an interval, here none, and a time from now, none to clear it.
type timerSpec struct{ interval, value syscall.Timespec }

// fileTimer is a timer of the system, as a file that can be read when it rings. To begin and to stop it wakes nobody.
type fileTimer struct {
	descriptor uintptr
	wait, none timerSpec
	file       *os.File
}

func newTimer(wait time.Duration, ring func()) timer {
	descriptor, _, problem := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, timerNonBlocking|timerCloseOnExec, 0)
	if problem != 0 {
		return newGoTimer(wait, ring)
	}
	t := &fileTimer{
		descriptor: descriptor,
		wait:       timerSpec{value: syscall.NsecToTimespec(int64(wait))},
		file:       os.NewFile(descriptor, "timer"),
	}
	go t.listen(ring)
	return t
}

func (t *fileTimer) listen(ring func()) {
	var times [8]byte
	for {
		if _, err := t.file.Read(times[:]); err != nil {
			// The handler has closed descriptors that are not its own, that of the connection too.
			return
		}
		ring()
	}
}

func (t *fileTimer) begin() { t.apply(&t.wait) }

func (t *fileTimer) stop() { t.apply(&t.none) }

// It does not wait, so the scheduler need not know of it.
func (t *fileTimer) apply(spec *timerSpec) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, t.descriptor, 0, uintptr(unsafe.Pointer(spec)), 0, 0, 0)
}
