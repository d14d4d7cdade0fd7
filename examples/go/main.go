// Ranks labels for texts from standard input with Carya's C interface. Each line contains one text.
//
//	cd examples/go
//	CGO_CFLAGS="$(carya c-flags)" CGO_LDFLAGS="$(carya c-flags)" go build -o rank
//	echo "a fast web server" | ./rank model/
package main

/*
#include <carya.h>
#include <stdlib.h>
*/
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

const topK = 5

// Suggestion is a label with its score.
type Suggestion struct {
	Label string
	Score float32
}

// Model is an open model. Any number of goroutines can use it at the same time.
type Model struct{ handle *C.carya_model }

// Open opens a saved text model.
func Open(folder string) (*Model, error) {
	path := C.CString(folder)
	defer C.free(unsafe.Pointer(path))
	runtime.LockOSThread() // carya_error returns the last error of the calling OS thread
	defer runtime.UnlockOSThread()
	handle := C.carya_open(path)
	if handle == nil {
		return nil, fmt.Errorf("%s", C.GoString(C.carya_error()))
	}
	return &Model{handle}, nil
}

// Close closes the model. No goroutine may use the model during or after this call.
func (m *Model) Close() { C.carya_close(m.handle) }

// Rank returns the top-ranked labels for a text, best first.
func (m *Model) Rank(text string) ([]Suggestion, error) {
	raw := C.CString(text)
	defer C.free(unsafe.Pointer(raw))
	var best [topK]C.carya_label
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	count := C.carya_rank_text(m.handle, raw, C.int64_t(len(text)), nil, &best[0], topK)
	if count < 0 {
		return nil, fmt.Errorf("%s", C.GoString(C.carya_error()))
	}
	suggestions := make([]Suggestion, count)
	for i := range suggestions {
		id := C.carya_label_id(m.handle, best[i].label)
		suggestions[i] = Suggestion{C.GoStringN(id.data, C.int(id.size)), float32(best[i].score)}
	}
	return suggestions, nil
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: %s MODEL < texts", os.Args[0])
	}
	model, err := Open(os.Args[1])
	if err != nil {
		return err
	}
	defer model.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		suggestions, err := model.Rank(lines.Text())
		if err != nil {
			return err
		}
		for i, suggestion := range suggestions {
			if i > 0 {
				fmt.Print("\t")
			}
			fmt.Printf("%s:%.6g", suggestion.Label, suggestion.Score)
		}
		fmt.Println()
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
