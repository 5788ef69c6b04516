//go:build !linux

package fngwruntime

import (
	"net"
	"syscall"
)

func duplicate(from, to int) error { return syscall.Dup2(from, to) }

// pipe makes one that programs which are started do not get.
func pipe() (in, out int, err error) {
	var ends [2]int
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err = syscall.Pipe(ends[:]); err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	return ends[0], ends[1], err
}

func memoryLimit() int64 { return 0 }

// watched are descriptors to read from.
type watched struct{}

func watch([2]int) (watched, error) { return watched{}, nil }

// readable cannot tell without reading.
func (*watched) readable() [2]bool { return [2]bool{true, true} }

// newConnection leaves all waits to the language.
func newConnection(conn net.Conn) connection { return parkedConn{conn} }

func newDirect(int) connection { return nil }
