package fngwruntime

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
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
	mib             = 1 << 20
	// Largest frame, bytes after the length word; a worker adds its function's max_body_bytes.
	maxFrameBytes = 16 * mib
	// Largest body of one reply; a larger one is sent as chunks.
	maxReplyBodyBytes = mib
	// Bytes of a stream that may be under way, and of one chunk.
	streamWindowBytes = 256 << 10
	// A greeting is small; a peer that sends more is none.
	maxGreetingBytes = 1024
)

type frame struct {
	kind   byte
	id     uint32
	header []byte
	body   []byte
}

type frameReader struct {
	in    *bufio.Reader
	limit uint32
}

// next reads one frame; io.EOF after the last one.
func (r *frameReader) next() (frame, error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(r.in, prefix[:4]); err != nil {
		return frame{}, err
	}
	length := binary.BigEndian.Uint32(prefix[:4])
	if length < fixedBytes {
		return frame{}, fmt.Errorf("FRAME_TOO_SHORT: frame length %d is below %d", length, fixedBytes)
	}
	if length > r.limit {
		return frame{}, fmt.Errorf("FRAME_TOO_LONG: frame length %d is above %d", length, r.limit)
	}
	if _, err := io.ReadFull(r.in, prefix[4:]); err != nil {
		return frame{}, unexpected(err)
	}
	headerBytes := binary.BigEndian.Uint32(prefix[9:])
	if headerBytes > length-fixedBytes {
		return frame{}, errors.New("HEADER_TOO_LONG: frame header is longer than its frame")
	}
	rest := make([]byte, length-fixedBytes)
	if _, err := io.ReadFull(r.in, rest); err != nil {
		return frame{}, unexpected(err)
	}
	return frame{prefix[4], binary.BigEndian.Uint32(prefix[5:9]), rest[:headerBytes], rest[headerBytes:]}, nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func appendFrame(to []byte, kind byte, id uint32, header string, body []byte) []byte {
	var prefix [prefixBytes]byte
	binary.BigEndian.PutUint32(prefix[0:], uint32(fixedBytes+len(header)+len(body)))
	prefix[4] = kind
	binary.BigEndian.PutUint32(prefix[5:], id)
	binary.BigEndian.PutUint32(prefix[9:], uint32(len(header)))
	to = append(to, prefix[:]...)
	to = append(to, header...)
	return append(to, body...)
}

// frameWriter joins frames: whoever finds nobody writing writes, and takes along what others add meanwhile.
type frameWriter struct {
	out     io.Writer
	mu      sync.Mutex
	idle    *sync.Cond
	pending []byte
	spare   []byte
	writing bool
	failed  bool
	// True while calls are quick.
	isPatient atomic.Bool
}

func newFrameWriter(out io.Writer) *frameWriter {
	w := &frameWriter{out: out}
	w.idle = sync.NewCond(&w.mu)
	return w
}

func (w *frameWriter) send(kind byte, id uint32, header string, body []byte) {
	w.mu.Lock()
	if w.failed {
		w.mu.Unlock()
		return
	}
	w.pending = appendFrame(w.pending, kind, id, header, body)
	if w.writing {
		w.mu.Unlock()
		return
	}
	w.writing = true
	if w.isPatient.Load() {
		w.mu.Unlock()
		// Calls that are about to end add their answers to this write, which costs more than they do. Behind slow ones the
		// answer would wait too long.
		runtime.Gosched()
		w.mu.Lock()
	}
	for len(w.pending) > 0 && !w.failed {
		batch := w.pending
		w.pending = w.spare[:0]
		w.mu.Unlock()
		_, err := w.out.Write(batch)
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
	w.mu.Unlock()
}

// flush returns when everything sent so far is written.
func (w *frameWriter) flush() {
	w.mu.Lock()
	for w.writing {
		w.idle.Wait()
	}
	w.mu.Unlock()
}
