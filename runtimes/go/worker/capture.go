package fngwruntime

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unicode/utf8"
	"unsafe"
)

// Captured output of one call and stream that is passed on.
const maxCapturedBytes = 64 << 10

var cutNote = "\n[output above " + strconv.Itoa(maxCapturedBytes>>10) + " KiB dropped]\n"

// capture finds out whose output something is. What comes by way of package os belongs to the call whose goroutine, or
// one that it started, writes it (attribution.go). Of what is written to descriptors 1 and 2 by other means nobody can
// tell: it belongs to the one open call, and goes on to where the process's output went before when there are several.
type capture struct {
	mu      sync.Mutex
	writer  *frameWriter
	streams [2]*outputStream
	pipes   watched
	// The open calls by the label of their goroutines.
	open map[unsafe.Pointer]*call
}

type outputStream struct {
	name string
	// The file that the descriptor is for package os.
	file *os.File
	// The pipe that stands in for the descriptor, which is a file from when somebody waits for it.
	fd int
	in *os.File
	// Where it led before.
	outside *os.File
	// Made when there is something to read.
	buffer []byte
}

// callOutput is what one call has written to one stream.
type callOutput struct {
	// Bytes so far.
	bytes int
	// The beginning of a character whose rest has not come yet.
	rest []byte
}

func newCapture(writer *frameWriter) (*capture, error) {
	c := &capture{writer: writer, open: map[unsafe.Pointer]*call{}}
	for i, name := range [2]string{"stdout", "stderr"} {
		stream, err := redirect(i+1, name)
		if err != nil {
			return nil, err
		}
		stream.file = [2]*os.File{os.Stdout, os.Stderr}[i]
		c.streams[i] = stream
	}
	var err error
	if c.pipes, err = watch([2]int{c.streams[0].fd, c.streams[1].fd}); err != nil {
		return nil, err
	}
	fileOutput = c.takeFile
	return c, nil
}

func redirect(descriptor int, name string) (*outputStream, error) {
	outside, err := syscall.Dup(descriptor)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(outside)
	in, out, err := pipe()
	if err != nil {
		return nil, err
	}
	if err := duplicate(out, descriptor); err != nil {
		return nil, err
	}
	_ = syscall.Close(out)
	return &outputStream{name: name, fd: in, outside: os.NewFile(uintptr(outside), name)}, syscall.SetNonblock(in, true)
}

// follow reads what is written while nobody looks for it, so that no writer waits.
func (c *capture) follow(stream *outputStream) {
	stream.in = os.NewFile(uintptr(stream.fd), stream.name)
	raw, err := stream.in.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(uintptr) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.drain(stream)
	})
}

// drain reads all that is there; true at the end of the stream.
func (c *capture) drain(stream *outputStream) bool {
	if stream.buffer == nil {
		stream.buffer = make([]byte, 16<<10)
	}
	for {
		count, err := syscall.Read(stream.fd, stream.buffer)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err != syscall.EAGAIN
		}
		if count <= 0 {
			return true
		}
		c.pass(stream, c.alone(), stream.buffer[:count])
	}
}

func (c *capture) drainAll() {
	for i, isReadable := range c.pipes.readable() {
		if isReadable {
			c.drain(c.streams[i])
		}
	}
}

// begin is called before a call runs: the calling goroutine, and all that it starts, are the call's from now on. Output up to
// here belongs to whoever was alone until now. A goroutine that has just ended another call has looked into the pipes for
// it: it follows.
func (c *capture) begin(call *call, follows bool) {
	call.label = labelGoroutine(call.ctx)
	c.mu.Lock()
	if len(c.open) == 1 || (len(c.open) == 0 && !follows) {
		c.drainAll()
	}
	c.open[call.label] = call
	c.mu.Unlock()
}

// settle passes on what was written up to here.
func (c *capture) settle() {
	c.mu.Lock()
	c.drainAll()
	c.mu.Unlock()
}

// end is called before a call's last frame; afterwards its output is complete.
func (c *capture) end(call *call) {
	c.mu.Lock()
	if len(c.open) <= 2 {
		c.drainAll()
	}
	for i, stream := range c.streams {
		if rest := call.output[i].rest; len(rest) > 0 {
			c.writer.send(kindLog, call.id, stream.header(), rest)
		}
	}
	delete(c.open, call.label)
	c.mu.Unlock()
}

// takeFile takes what is written to a file of package os; false when it has to be written there.
func (c *capture) takeFile(file *os.File, text []byte) bool {
	for _, stream := range c.streams {
		if stream.file == file {
			return c.takeOwned(stream, text)
		}
	}
	return false
}

func (c *capture) takeOwned(stream *outputStream, text []byte) bool {
	label := goroutineLabel()
	if label == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := c.open[label]
	if owner == nil {
		return false
	}
	if len(c.open) == 1 {
		c.drainAll()
	}
	c.pass(stream, owner, text)
	return true
}

// write takes output that comes by way of this process's own code.
func (c *capture) write(stream *outputStream, text []byte) {
	if c.takeOwned(stream, text) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drainAll()
	c.pass(stream, c.alone(), text)
}

func (c *capture) alone() *call {
	if len(c.open) == 1 {
		for _, call := range c.open {
			return call
		}
	}
	return nil
}

// pass sends output to the log as the owner's; without one it goes on to where it went before.
func (c *capture) pass(stream *outputStream, owner *call, text []byte) {
	if owner == nil {
		_, _ = stream.outside.Write(text)
		return
	}
	output := &owner.output[0]
	if stream == c.streams[1] {
		output = &owner.output[1]
	}
	if output.bytes > maxCapturedBytes {
		return
	}
	text = append(output.rest, text...)
	output.rest = nil
	isCut := false
	if output.bytes+len(text) > maxCapturedBytes {
		text = bytes.ToValidUTF8(text[:maxCapturedBytes-output.bytes], nil)
		isCut = true
		output.bytes = maxCapturedBytes + 1
	} else {
		end := completeEnd(text)
		output.rest = append([]byte(nil), text[end:]...)
		text = text[:end]
		output.bytes += len(text)
	}
	if len(text) > 0 {
		c.writer.send(kindLog, owner.id, stream.header(), text)
	}
	if isCut {
		// By itself: together they might be more than a frame of output may have.
		c.writer.send(kindLog, owner.id, stream.header(), []byte(cutNote))
	}
}

func (s *outputStream) header() string {
	return `{"stream":"` + s.name + `"}`
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
	w.capture.write(w.capture.streams[1], text)
	return len(text), nil
}

var _ io.Writer = logWriter{}
