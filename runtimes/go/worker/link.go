package fngwruntime

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func fail(message string) {
	_, _ = os.Stderr.WriteString(message + "\n")
	os.Exit(1)
}

// inherited is the connection that the daemon accepted for this process, nil where the address is one to listen on.
func inherited(address string) (connection, error) {
	if !strings.HasPrefix(address, "fd:") {
		return nil, nil
	}
	descriptor, err := strconv.Atoi(strings.TrimPrefix(address, "fd:"))
	if err != nil {
		return nil, err
	}
	if direct := newDirect(descriptor); direct != nil {
		return direct, nil
	}
	file := os.NewFile(uintptr(descriptor), "gateway")
	if file == nil {
		return nil, os.ErrInvalid
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	return parkedConn{conn}, err
}

func listen(address string) (net.Listener, string, error) {
	if !strings.HasPrefix(address, "tcp://") {
		// A socket is its owner's alone from the moment it has a name.
		before := syscall.Umask(0177)
		listener, err := net.Listen("unix", address)
		syscall.Umask(before)
		return listener, "unix:" + address, err
	}
	at, err := url.Parse(address)
	if err != nil {
		return nil, "", err
	}
	listener, err := net.Listen("tcp", at.Host)
	if err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return listener, "tcp://" + net.JoinHostPort(at.Hostname(), port), nil
}

type peer struct {
	conn   io.ReadWriteCloser
	input  *input
	reader *frameReader
}

// meet waits for the first peer that greets, which is the gateway. Who does not greet takes nothing away.
func (w *worker) meet(listener net.Listener) {
	greeted := make(chan peer)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go greet(conn, greeted)
		}
	}()
	gateway := <-greeted
	listener.Close()
	w.join(gateway, newConnection(gateway.conn.(net.Conn)))
}

// meetOnly has the one peer that there can be.
func (w *worker) meetOnly(conn connection) {
	greeted := make(chan peer, 1)
	greet(conn, greeted)
	select {
	case gateway := <-greeted:
		w.join(gateway, conn)
	default:
		os.Exit(1)
	}
}

func (w *worker) join(gateway peer, conn connection) {
	w.conn = conn
	gateway.input.Reader = w.conn
	w.reader = gateway.reader
	w.writer = newFrameWriter(w.conn)
}

func greet(conn io.ReadWriteCloser, greeted chan<- peer) {
	from := &input{conn}
	reader := &frameReader{in: bufio.NewReaderSize(from, 64<<10), only: kindHello}
	first, err := reader.next()
	fields, headerError := parseObject(first.header)
	switch {
	case err != nil || headerError != nil || fields["role"] != "worker":
		refuse(conn, "this socket serves one gateway, which begins with hello in the role worker")
	case len(first.body) != 1 || first.body[0] != protocolVersion:
		refuse(conn, "this protocol version is not spoken here")
	default:
		reader.only = 0
		greeted <- peer{conn, from, reader}
	}
}

func refuse(conn io.WriteCloser, message string) {
	text := `{"code":"protocol","message":` + quote(message) + `}`
	_, _ = conn.Write(appendFrame(nil, kindError, 0, text, nil))
	conn.Close()
}

// start learns the function; the connection is of no use without.
func (w *worker) start() {
	first, err := w.reader.next()
	fields, headerError := parseObject(first.header)
	if err != nil || headerError != nil || first.kind != kindStart {
		refuse(w.conn, "start must follow hello")
		os.Exit(1)
	}
	text := func(key string) string { value, _ := fields[key].(string); return value }
	w.root, w.dir = text("root"), text("dir")
	w.source = w.dir
	w.module = ownModule()
	if entry := text("entry"); filepath.IsAbs(entry) {
		w.source = filepath.Dir(entry)
	}
	if w.version = text("version"); w.version == "" {
		w.version = "default"
	}
	env, _ := fields["env"].(map[string]any)
	context, _ := fields["context"].(map[string]any)
	for name, value := range env {
		if value, isText := value.(string); isText {
			_ = os.Setenv(name, value)
		}
	}
	if most, isNumber := context["max_body_bytes"].(float64); isNumber && most > 0 && most < 1<<31 {
		w.reader.maxBodyBytes = uint32(most)
	}
	w.prepare(context, env)
	// Relative paths of a handler mean its own folder.
	if err := os.Chdir(w.dir); err != nil {
		w.writer.send(kindError, 0, failure{code: "load", message: "cannot enter the function's folder: " + err.Error()}.toJSON(), nil)
		os.Exit(1)
	}
	_ = os.Unsetenv("PWD")
	if adapter := text("adapter"); adapter != "" && adapter != "native" {
		w.writer.send(kindError, 0, failure{code: "load", message: "invoke.adapter unsupported for go: " + adapter}.toJSON(), nil)
		os.Exit(1)
	}
	capture, err := newCapture(w.writer)
	if err != nil {
		fail("worker cannot capture output: " + err.Error())
	}
	w.capture = capture
	tellCrashes(capture.streams[1].outside)
	log.SetOutput(logWriter{capture})
	if atExit != nil {
		w.writer.isJoining = true
		atExit = func() {
			capture.settle()
			w.writer.flush()
		}
	}
	w.leadership.watch(w.settleIn, w.begin)
	w.leadership.alarm.set(clock())
}
