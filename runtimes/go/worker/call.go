package fngwruntime

import (
	"context"
	"strconv"
	"sync"
	"unsafe"
)

// What a reply's header needs beside status and headers, at most.
const headMarginBytes = 64

// call is one call from its frame to its answer.
type call struct {
	id     uint32
	worker *worker
	// Of the goroutine that runs it.
	lead *lead
	// nil unless the handler takes one.
	ctx           context.Context
	cancelContext context.CancelFunc

	// Of capture, under its lock: of the call's goroutines, and what they wrote to stdout and stderr.
	label  unsafe.Pointer
	output [2]callOutput

	mu       sync.Mutex
	changed  sync.Cond
	credit   int
	canceled bool
}

func (c *call) run(event map[string]any, body []byte) {
	defer c.worker.running.Done()
	returned := false
	defer func() {
		if returned {
			return
		}
		// Neither a panic nor runtime.Goexit of one call ends the process under the others.
		failed := failure{code: "exception", message: "handler ended its goroutine"}
		if reason := recover(); reason != nil {
			failed = c.worker.describePanic(reason)
		}
		c.finish(kindError, failed.toJSON(), nil)
	}()
	asked := addBody(event, body)
	begun := clock()
	value, err := c.worker.invoke(c.ctx, event)
	ended := clock()
	c.worker.leadership.learn(ended - begun)
	c.lead.proceed(ended)
	var made answer
	if err == nil {
		made, err = toAnswer(value, asked)
	}
	if err == nil && len(made.head) > maxReplyHeadBytes-headMarginBytes {
		err = contractError("status and headers take " + strconv.Itoa(len(made.head)) + " bytes, above 512 KiB")
	}
	returned = true
	if err != nil {
		failed := failure{code: "exception", message: toMessage(err)}
		if broken, isBroken := err.(contractError); isBroken {
			failed = failure{code: "contract", message: string(broken)}
		}
		c.finish(kindError, failed.toJSON(), nil)
	} else if len(made.body) <= maxReplyBodyBytes {
		c.finish(kindReply, made.head+"}", made.body)
	} else {
		c.stream(made)
	}
	// All of both is written, or copied to what will be.
	giveMemory(asked.bytes)
	if made.isDecoded {
		giveMemory(made.body)
	}
}

// finish sends the call's last frame, after all of its output. The leader's leaves with those of the calls behind it.
func (c *call) finish(kind byte, header string, body []byte) {
	w := c.worker
	w.capture.end(c)
	w.mu.Lock()
	delete(w.calls, c.id)
	w.mu.Unlock()
	c.mu.Lock()
	if c.canceled {
		kind, header, body = kindEnd, `{"canceled":true}`, nil
	}
	c.mu.Unlock()
	if c.cancelContext != nil {
		c.cancelContext()
	}
	if c.lead.advance() {
		w.writer.join(kind, c.id, header, body)
	} else {
		w.writer.send(kind, c.id, header, body)
	}
}

// stream sends a large body in pieces, as far as the gateway grants them, which somebody else has to read.
func (c *call) stream(made answer) {
	c.worker.passOn(c.lead)
	head := made.head + `,"stream":true,"length":` + strconv.Itoa(len(made.body)) + "}"
	c.worker.writer.send(kindReply, c.id, head, nil)
	for rest := made.body; len(rest) > 0; {
		size := c.takeCredit(len(rest))
		if size == 0 {
			break
		}
		c.worker.writer.send(kindChunk, c.id, "", rest[:size])
		rest = rest[size:]
	}
	c.finish(kindEnd, "", nil)
}

// takeCredit waits for bytes that may be sent; 0 when nobody wants them any more.
func (c *call) takeCredit(wanted int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.credit == 0 && !c.canceled {
		c.changed.Wait()
	}
	if c.canceled {
		return 0
	}
	if wanted > c.credit {
		wanted = c.credit
	}
	c.credit -= wanted
	return wanted
}

func (c *call) grant(bytes int) {
	c.mu.Lock()
	c.credit += bytes
	if c.credit > streamWindowBytes {
		c.credit = streamWindowBytes
	}
	c.mu.Unlock()
	c.changed.Signal()
}

func (c *call) cancel() {
	c.mu.Lock()
	c.canceled = true
	c.mu.Unlock()
	c.changed.Signal()
	if c.cancelContext != nil {
		c.cancelContext()
	}
}
