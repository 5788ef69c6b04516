package fngwruntime

import (
	"io"
	"net"
)

// connection is the one to the gateway.
type connection interface {
	io.ReadWriteCloser
	// writeBoth writes two parts, in one call of the system where it can.
	writeBoth(first, second []byte) error
	// keepThread says whether the next read may take its thread along while it waits.
	keepThread(may bool)
}

// parkedConn is a connection as the language has it: who waits is parked, and wakes up by way of the scheduler.
type parkedConn struct{ net.Conn }

func (c parkedConn) writeBoth(first, second []byte) error {
	if len(second) == 0 {
		_, err := c.Write(first)
		return err
	}
	if unix, isUnix := c.Conn.(*net.UnixConn); isUnix {
		_ = unix.SetWriteBuffer(sentBytes)
	}
	both := net.Buffers{first, second}
	_, err := both.WriteTo(c.Conn)
	return err
}

func (parkedConn) keepThread(bool) {}

// input is where frames are read from. It changes once, when the peer has greeted.
type input struct{ io.Reader }
