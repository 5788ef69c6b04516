package fngwruntime

import (
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
)

const (
	maxMessageBytes = 4096
	maxStackBytes   = 8192
	maxStackFrames  = 40
	// Most bytes of an error frame's header. Only a text full of control characters comes near: each takes six bytes.
	maxFailureBytes = 60 * kib
)

type failure struct {
	code    string
	message string
	file    string
	line    int
	stack   string
}

func (f failure) toJSON() string {
	if text := f.toText(); len(text) <= maxFailureBytes {
		return text
	}
	f.stack = ""
	return f.toText()
}

func (f failure) toText() string {
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

// describePanic is called in the deferred function that recovered `reason`, where the panicking frames still stand. Of
// those only the function's own are told.
func (f *function) describePanic(reason any) failure {
	failed := failure{code: "exception", message: toMessage(reason)}
	var stack strings.Builder
	programs := make([]uintptr, 4*maxStackFrames)
	frames := runtime.CallersFrames(programs[:runtime.Callers(2, programs)])
	isBelowPanic := false
	for count := 0; count < maxStackFrames; {
		frame, more := frames.Next()
		if file, isOwn := f.toUserFile(frame); isOwn && isBelowPanic {
			if failed.file == "" {
				failed.file, failed.line = file, frame.Line
			}
			fmt.Fprintf(&stack, "%s (%s:%d)\n", frame.Function, file, frame.Line)
			count++
		}
		isBelowPanic = isBelowPanic || frame.Function == "runtime.gopanic"
		if !more {
			break
		}
	}
	failed.stack = strings.TrimSuffix(stack.String(), "\n")
	return failed
}

// ownModule is the import path of the module that this package was put into.
func ownModule() string {
	return path.Dir(reflect.TypeOf(function{}).PkgPath())
}

// toUserFile names a source file of the function as its owner knows it, below the functions root; false for code of
// others: the language's, of modules it needs, and this package's.
func (f *function) toUserFile(frame runtime.Frame) (string, bool) {
	file := filepath.ToSlash(frame.File)
	below, isOwn := "", false
	if strings.HasPrefix(frame.Function, "main.") && frame.Function != "main.main" {
		below, isOwn = filepath.Join(f.source, path.Base(file)), true
	} else if strings.HasPrefix(frame.Function, f.module+"/") && !strings.HasPrefix(frame.Function, f.module+"/"+packageName+".") {
		below, isOwn = filepath.Join(f.dir, strings.TrimPrefix(file, f.module+"/")), true
	}
	if name, err := filepath.Rel(f.root, below); isOwn && err == nil {
		return filepath.ToSlash(name), true
	}
	return file, isOwn
}

const packageName = "fngwruntime"

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
