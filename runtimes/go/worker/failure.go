package fngwruntime

import (
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

const (
	maxMessageBytes = 4096
	maxStackBytes   = 16384
	maxStackFrames  = 40
)

type failure struct {
	code    string
	message string
	file    string
	line    int
	stack   string
}

func (f failure) toJSON() string {
	text := `{"code":"` + f.code + `","message":` + quote(cut(f.message, maxMessageBytes))
	if f.file != "" {
		text += `,"file":` + quote(f.file) + `,"line":` + strconv.Itoa(f.line)
	}
	if f.stack != "" {
		text += `,"stack":` + quote(cut(f.stack, maxStackBytes))
	}
	return text + "}"
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// describePanic is called in the deferred function that recovered `reason`, where the panicking frames still stand.
func (f *function) describePanic(reason any) failure {
	failed := failure{code: "exception", message: toMessage(reason)}
	var stack strings.Builder
	programs := make([]uintptr, 4*maxStackFrames)
	frames := runtime.CallersFrames(programs[:runtime.Callers(2, programs)])
	isBelowPanic := false
	for count := 0; count < maxStackFrames; {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, "runtime.") {
			isBelowPanic = isBelowPanic || frame.Function == "runtime.gopanic"
		} else if strings.Contains(frame.Function, "/"+packageName+".") {
			// The frames of this package are the same for every call.
			if isBelowPanic {
				break
			}
		} else if isBelowPanic {
			file := f.toUserFile(frame)
			if failed.file == "" && strings.HasPrefix(frame.Function, "main.") {
				failed.file, failed.line = file, frame.Line
			}
			fmt.Fprintf(&stack, "%s (%s:%d)\n", frame.Function, file, frame.Line)
			count++
		}
		if !more {
			break
		}
	}
	failed.stack = strings.TrimSuffix(stack.String(), "\n")
	return failed
}

const packageName = "fngwruntime"

// toUserFile names a source file of the function as its owner knows it, below the functions root.
func (f *function) toUserFile(frame runtime.Frame) string {
	if strings.HasPrefix(frame.Function, "main.") {
		name := path.Base(filepath.ToSlash(frame.File))
		if below, err := filepath.Rel(f.root, filepath.Join(f.source, name)); err == nil {
			return filepath.ToSlash(below)
		}
	}
	return frame.File
}

func toMessage(reason any) (text string) {
	// An Error or String method of the user's may panic in turn.
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("panic with a %T", reason)
		}
	}()
	if err, isError := reason.(error); isError {
		return err.Error()
	}
	return fmt.Sprint(reason)
}
