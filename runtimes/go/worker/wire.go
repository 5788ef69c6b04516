package fngwruntime

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// Frames: u32 length | u8 kind | u32 id | u32 header length | header: JSON object | body, integers big-endian.
const (
	kindHello  = 1
	kindReady  = 2
	kindStart  = 3
	kindLog    = 7
	kindCall   = 16
	kindReply  = 17
	kindChunk  = 18
	kindEnd    = 19
	kindCancel = 20
	kindError  = 21
	kindMore   = 22
	kindPing   = 32
	kindPong   = 33
)

const (
	protocolVersion = 1
	prefixBytes     = 13
	fixedBytes      = 9
	kib             = 1 << 10
	mib             = 1 << 20
	// Largest body of one reply; a larger one is sent as chunks.
	maxReplyBodyBytes = mib
	// Bytes of a stream that may be under way, and of one chunk.
	streamWindowBytes = 256 << 10
	// What the socket takes before the gateway has read: with less a worker waits in the middle of a large answer.
	sentBytes = 2 * mib
	// Largest header of a reply.
	maxReplyHeadBytes = 512 * kib
	// A body from this size on is written from where it is, a smaller one is copied behind others.
	ownWriteBytes = 16 * kib
	// Answers, and bytes of them, that wait for each other at most.
	joinedFrames = 8
	joinedBytes  = 64 * kib
)

// limit says how many bytes header and body of a kind may have, looked at before memory is taken for them.
type limit struct {
	name         string
	header, body uint32
}

// limits has the kinds that a gateway sends.
var limits = [256]limit{
	kindHello:  {"hello", 4 * kib, 16},
	kindStart:  {"start", 4 * mib, 0},
	kindCall:   {"call", mib, 16 * mib},
	kindCancel: {"cancel", 4 * kib, 0},
	kindMore:   {"more", 4 * kib, 0},
	kindPing:   {"ping", 4 * kib, 64},
	kindPong:   {"pong", 4 * kib, 64},
}

type frame struct {
	kind   byte
	id     uint32
	header []byte
	body   []byte
}

// protocolError is how the gateway broke the protocol.
type protocolError string

func (e protocolError) Error() string { return string(e) }

func protocolErrorf(format string, values ...any) error {
	return protocolError(fmt.Sprintf(format, values...))
}

type frameReader struct {
	in *bufio.Reader
	// What the body of a call may have beyond the protocol's own limit: the function's max_body_bytes.
	maxBodyBytes uint32
	// The only kind taken, 0 for all.
	only byte
}

// hasNext is true when all of the next frame was read already.
func (r *frameReader) hasNext() bool {
	held := r.in.Buffered()
	if held < 4 {
		return false
	}
	length, err := r.in.Peek(4)
	return err == nil && uint64(held) >= 4+uint64(binary.BigEndian.Uint32(length))
}

// next reads one frame; io.EOF after the last one.
func (r *frameReader) next() (frame, error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(r.in, prefix[:4]); err != nil {
		return frame{}, err
	}
	length := binary.BigEndian.Uint32(prefix[:4])
	if length < fixedBytes {
		return frame{}, protocolErrorf("FRAME_TOO_SHORT: frame length %d is below %d", length, fixedBytes)
	}
	if _, err := io.ReadFull(r.in, prefix[4:]); err != nil {
		return frame{}, unexpected(err)
	}
	kind, headerBytes := prefix[4], binary.BigEndian.Uint32(prefix[9:])
	if err := r.check(kind, headerBytes, length-fixedBytes); err != nil {
		return frame{}, err
	}
	// Both have memory of their own, which the event's texts are made of.
	header, body := make([]byte, headerBytes), takeMemory(int(length-fixedBytes-headerBytes))
	if _, err := io.ReadFull(r.in, header); err != nil {
		return frame{}, unexpected(err)
	}
	if _, err := io.ReadFull(r.in, body); err != nil {
		return frame{}, unexpected(err)
	}
	return frame{kind, binary.BigEndian.Uint32(prefix[5:9]), header, body}, nil
}

// check tells why a frame of a kind cannot be, by the bytes of its header and of header and body.
func (r *frameReader) check(kind byte, header, both uint32) error {
	most := limits[kind]
	if most.name == "" {
		return protocolErrorf("UNKNOWN_KIND: a worker does not take frames of kind %d", kind)
	}
	if r.only != 0 && kind != r.only {
		return protocolErrorf("UNEXPECTED_KIND: the first frame must be %s", limits[r.only].name)
	}
	if header > most.header {
		return protocolErrorf("HEADER_TOO_LONG: header of a %s frame has %d bytes, above %d", most.name, header, most.header)
	}
	if header > both {
		return protocolErrorf("HEADER_TOO_LONG: frame header is longer than its frame")
	}
	if kind == kindCall {
		most.body += r.maxBodyBytes
	}
	if both-header > most.body {
		return protocolErrorf("FRAME_TOO_LONG: body of a %s frame has %d bytes, above %d", most.name, both-header, most.body)
	}
	return nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func appendFrame(to []byte, kind byte, id uint32, header string, body []byte) []byte {
	return append(appendHead(to, kind, id, header, len(body)), body...)
}

func appendHead(to []byte, kind byte, id uint32, header string, bodyBytes int) []byte {
	var prefix [prefixBytes]byte
	binary.BigEndian.PutUint32(prefix[0:], uint32(fixedBytes+len(header)+bodyBytes))
	prefix[4] = kind
	binary.BigEndian.PutUint32(prefix[5:], id)
	binary.BigEndian.PutUint32(prefix[9:], uint32(len(header)))
	to = append(to, prefix[:]...)
	return append(to, header...)
}

// frameWriter joins frames: whoever finds nobody writing writes, and takes along what others add meanwhile.
type frameWriter struct {
	out     connection
	mu      sync.Mutex
	idle    *sync.Cond
	pending []byte
	// Frames in pending.
	joined  int
	spare   []byte
	writing bool
	failed  bool
	// True when frames may wait for others: what is left is written before the process ends.
	isJoining bool
}

func newFrameWriter(out connection) *frameWriter {
	w := &frameWriter{out: out}
	w.idle = sync.NewCond(&w.mu)
	return w
}

// send adds a frame, which leaves now.
func (w *frameWriter) send(kind byte, id uint32, header string, body []byte) {
	w.mu.Lock()
	if len(body) < ownWriteBytes || w.writing {
		w.pending = appendFrame(w.pending, kind, id, header, body)
		body = nil
	} else {
		w.pending = appendHead(w.pending, kind, id, header, len(body))
	}
	w.write(body)
}

// join adds a frame, which leaves with the next ones, at the latest with flush.
func (w *frameWriter) join(kind byte, id uint32, header string, body []byte) {
	if !w.isJoining || len(body) >= ownWriteBytes {
		w.send(kind, id, header, body)
		return
	}
	w.mu.Lock()
	w.pending = appendFrame(w.pending, kind, id, header, body)
	w.joined++
	if w.joined >= joinedFrames || len(w.pending) >= joinedBytes {
		w.write(nil)
	} else {
		w.mu.Unlock()
	}
}

// flush writes what was added.
func (w *frameWriter) flush() {
	w.mu.Lock()
	w.write(nil)
}

// write unlocks, and writes until nothing is left, unless another goroutine does; the body belongs behind what is there by now.
func (w *frameWriter) write(body []byte) {
	defer w.mu.Unlock()
	if w.failed {
		w.pending = nil
	}
	if w.writing || len(w.pending) == 0 {
		return
	}
	w.writing = true
	for len(w.pending) > 0 && !w.failed {
		batch := w.pending
		w.pending = w.spare[:0]
		w.joined = 0
		w.mu.Unlock()
		err := w.out.writeBoth(batch, body)
		body = nil
		w.mu.Lock()
		if cap(batch) <= mib {
			w.spare = batch[:0]
		} else {
			w.spare = nil
		}
		w.failed = err != nil
	}
	w.writing = false
	w.idle.Broadcast()
}

// settle returns when everything sent so far is written.
func (w *frameWriter) settle() {
	w.flush()
	w.mu.Lock()
	for w.writing {
		w.idle.Wait()
	}
	w.mu.Unlock()
}
