package fngwruntime

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unicode/utf8"
)

// Captured output of one call and stream that is passed on.
const maxCapturedBytes = 64 << 10

// capture stands between the handlers and descriptors 1 and 2. While exactly one call is open, what is written belongs
// to it; at other times nobody can tell, and it goes on to where the process's output went before.
type capture struct {
	mu      sync.Mutex
	writer  *frameWriter
	streams [2]*outputStream
	open    map[uint32]*call
}

type outputStream struct {
	name string
	// The pipe that stands in for the descriptor.
	in *os.File
	// Where it led before.
	outside *os.File
	buffer  []byte
	// Of the one open call: bytes so far, and the beginning of a character whose rest has not come yet.
	bytes int
	rest  []byte
}

func newCapture(writer *frameWriter) (*capture, error) {
	c := &capture{writer: writer, open: map[uint32]*call{}}
	for i, name := range [2]string{"stdout", "stderr"} {
		stream, err := redirect(i+1, name)
		if err != nil {
			return nil, err
		}
		c.streams[i] = stream
	}
	return c, nil
}

func redirect(descriptor int, name string) (*outputStream, error) {
	outside, err := syscall.Dup(descriptor)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(outside)
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if err := duplicate(int(out.Fd()), descriptor); err != nil {
		return nil, err
	}
	out.Close()
	return &outputStream{name: name, in: in, outside: os.NewFile(uintptr(outside), name), buffer: make([]byte, 16<<10)}, nil
}

// follow reads what is written while nobody looks for it, so that no writer waits.
func (c *capture) follow(stream *outputStream) {
	raw, err := stream.in.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(descriptor uintptr) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.drain(stream, int(descriptor))
	})
}

// drain reads all that is there; true at the end of the stream.
func (c *capture) drain(stream *outputStream, descriptor int) bool {
	for {
		count, err := syscall.Read(descriptor, stream.buffer)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err != syscall.EAGAIN
		}
		if count <= 0 {
			return true
		}
		c.pass(stream, stream.buffer[:count])
	}
}

func (c *capture) drainAll() {
	for _, stream := range c.streams {
		if raw, err := stream.in.SyscallConn(); err == nil {
			_ = raw.Control(func(descriptor uintptr) { c.drain(stream, int(descriptor)) })
		}
	}
}

// begin is called before a call runs; output up to here belongs to whoever was alone until now.
func (c *capture) begin(call *call) {
	c.mu.Lock()
	if len(c.open) <= 1 {
		c.drainAll()
		c.settle()
	}
	c.open[call.id] = call
	c.mu.Unlock()
}

// end is called before a call's last frame; afterwards its output is complete.
func (c *capture) end(call *call) {
	c.mu.Lock()
	if len(c.open) <= 2 {
		c.drainAll()
		c.settle()
	}
	delete(c.open, call.id)
	c.mu.Unlock()
}

// write takes output that comes by way of this process's own code.
func (c *capture) write(name string, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drainAll()
	for _, stream := range c.streams {
		if stream.name == name {
			c.pass(stream, text)
		}
	}
}

func (c *capture) alone() *call {
	if len(c.open) == 1 {
		for _, call := range c.open {
			return call
		}
	}
	return nil
}

func (c *capture) pass(stream *outputStream, text []byte) {
	call := c.alone()
	if call == nil {
		_, _ = stream.outside.Write(text)
		return
	}
	if stream.bytes > maxCapturedBytes {
		return
	}
	text = append(stream.rest, text...)
	stream.rest = nil
	note := ""
	if stream.bytes+len(text) > maxCapturedBytes {
		text = bytes.ToValidUTF8(text[:maxCapturedBytes-stream.bytes], nil)
		note = "\n[output above " + strconv.Itoa(maxCapturedBytes>>10) + " KiB dropped]\n"
		stream.bytes = maxCapturedBytes + 1
	} else {
		end := completeEnd(text)
		stream.rest = append([]byte(nil), text[end:]...)
		text = text[:end]
		stream.bytes += len(text)
	}
	if len(text)+len(note) > 0 {
		c.writer.send(kindLog, call.id, `{"stream":"`+stream.name+`"}`, append(text[:len(text):len(text)], note...))
	}
}

// settle ends what the one open call has written so far.
func (c *capture) settle() {
	call := c.alone()
	for _, stream := range c.streams {
		if call != nil && len(stream.rest) > 0 {
			c.writer.send(kindLog, call.id, `{"stream":"`+stream.name+`"}`, stream.rest)
		}
		stream.rest = nil
		stream.bytes = 0
	}
}

// completeEnd is where a character begins that is not complete yet, or the length.
func completeEnd(text []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		at := len(text) - back
		if utf8.RuneStart(text[at]) {
			if utf8.FullRune(text[at:]) {
				return len(text)
			}
			return at
		}
	}
	return len(text)
}

// logWriter makes the output of package log certain to arrive, also that of log.Fatal right before the end.
type logWriter struct{ capture *capture }

func (w logWriter) Write(text []byte) (int, error) {
	w.capture.write("stderr", text)
	return len(text), nil
}

var _ io.Writer = logWriter{}
