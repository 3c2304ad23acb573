// What a program prints, kept until somebody reads it: a server must not stand still because the matrix is
// busy with the client, and no line of a result may be lost.

package process

import (
	"context"
	"io"
	"sync"
)

// maxOutput bounds what is kept; what a peer prints beyond that is in its log alone.
const maxOutput = 256 << 20

// An output is a queue of lines with one reader.
type output struct {
	more chan struct{} // holds a token when there may be something new

	mu    sync.Mutex
	lines []string
	bytes int
	ended bool
}

func (o *output) add(line string) {
	o.mu.Lock()
	if o.bytes += len(line); o.bytes <= maxOutput {
		o.lines = append(o.lines, line)
	}
	o.mu.Unlock()
	o.signal()
}

func (o *output) end() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.signal()
}

func (o *output) signal() {
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// take returns a line, or whether there will be none any more.
func (o *output) take() (line string, ok, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lines) == 0 {
		return "", false, o.ended
	}
	line = o.lines[0]
	o.lines = o.lines[1:]
	return line, true, false
}

func (o *output) next(ctx context.Context) (string, error) {
	for {
		line, ok, ended := o.take()
		switch {
		case ok:
			return line, nil
		case ended:
			return "", io.EOF
		}
		select {
		case <-o.more:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}
