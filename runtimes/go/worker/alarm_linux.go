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

// fileAlarm is a timer of the system, as a file that can be read when it rings. Setting and clearing it wakes nobody.
type fileAlarm struct {
	descriptor uintptr
	wait, none timerSpec
	file       *os.File
}

func newAlarm(wait time.Duration, ring func()) alarm {
	descriptor, _, problem := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, timerNonBlocking|timerCloseOnExec, 0)
	if problem != 0 {
		return newGoAlarm(wait, ring)
	}
	a := &fileAlarm{
		descriptor: descriptor,
		wait:       timerSpec{value: syscall.NsecToTimespec(int64(wait))},
		file:       os.NewFile(descriptor, "alarm"),
	}
	go a.listen(ring)
	return a
}

func (a *fileAlarm) listen(ring func()) {
	var times [8]byte
	for {
		if _, err := a.file.Read(times[:]); err != nil {
			// The handler has closed descriptors that are not its own, that of the connection too.
			return
		}
		ring()
	}
}

func (a *fileAlarm) set() { a.apply(&a.wait) }

func (a *fileAlarm) clear() { a.apply(&a.none) }

// It does not wait, so the scheduler need not know of it.
func (a *fileAlarm) apply(spec *timerSpec) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, a.descriptor, 0, uintptr(unsafe.Pointer(spec)), 0, 0, 0)
}
