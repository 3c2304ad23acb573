// Shards: this program again, as often as the plan needs, each with a part. A worker is told what to do in
// an environment variable and reports in JSON lines on its stdout; its stdin ends with its parent, and so
// does it.

package testee

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"muxperf/measure"
)

// workerVariable makes this program a worker.
const workerVariable = "MUXPERF_TESTEE_WORKER"

// A job is what a worker has to do: serve, or hold.
type job struct {
	Serve           *Spec
	Engine, OnStall string
	StallCap        int
	Hold            *HoldOptions
	Share           Share
}

// A word is what a worker says.
type word struct {
	Event   string // "ready", "opened", "echoed", "error"
	Address string
	Error   string
	Opened  int
	Failed  map[string]int
	Connect measure.Distribution
	Time    time.Duration
	Delayed time.Duration
	Echoed  int
	Memory  int64 // growth of the resident set, bytes
}

// FileLimit raises the limit of open files as far as it goes, and returns it.
func FileLimit() (int, error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("reading the limit of open files: %w", err)
	}
	if lim.Cur < lim.Max {
		raised := lim
		raised.Cur = lim.Max
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			lim = raised
		}
	}
	return int(min(lim.Cur, 1<<30)), nil
}

// MaybeWorker does a worker's job if this process is one; main calls it first. It reports whether it was.
func MaybeWorker() bool {
	text, ok := os.LookupEnv(workerVariable)
	if !ok {
		return false
	}
	say := json.NewEncoder(os.Stdout)
	ctx, cancel := context.WithCancel(context.Background())
	commands := make(chan string, 4)
	go func() {
		s := bufio.NewScanner(os.Stdin)
		for s.Scan() {
			commands <- s.Text()
		}
		cancel() // the parent is gone, or done with us
	}()
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		if _, err = FileLimit(); err == nil {
			if j.Serve != nil {
				err = j.serve(ctx, say)
			} else {
				err = j.hold(ctx, say, commands)
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		_ = say.Encode(word{Event: "error", Error: err.Error()})
	}
	return true
}

func (j job) serve(ctx context.Context, say *json.Encoder) error {
	t, err := Listen(ctx, *j.Serve, Config{Engine: j.Engine, OnStall: j.OnStall, StallCap: j.StallCap})
	if err != nil {
		return err
	}
	if err := say.Encode(word{Event: "ready", Address: t.Addr().String()}); err != nil {
		return err
	}
	return t.Serve(ctx)
}

func (j job) hold(ctx context.Context, say *json.Encoder, commands <-chan string) error {
	runtime.LockOSThread()
	h, err := NewHolder(*j.Hold)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := say.Encode(word{Event: "ready"}); err != nil {
		return err
	}
	if !await(ctx, commands, "open") {
		return nil
	}
	before := residentSet("self")
	began := time.Now()
	if err := h.Open(ctx, j.Share); err != nil {
		return err
	}
	if err := say.Encode(word{Event: "opened", Opened: h.Established(), Failed: h.Failed, Connect: h.Connect.Distribution(),
		Time: time.Since(began), Delayed: h.Delayed, Memory: residentSet("self") - before}); err != nil {
		return err
	}
	if !await(ctx, commands, "echo") {
		return nil
	}
	began = time.Now()
	n := h.Echo(ctx, j.Hold.Patience)
	if err := say.Encode(word{Event: "echoed", Echoed: n, Time: time.Since(began)}); err != nil {
		return err
	}
	await(ctx, commands, "close")
	return nil
}

// await waits for a command; false if the parent is gone.
func await(ctx context.Context, commands <-chan string, want string) bool {
	select {
	case got := <-commands:
		return got == want
	case <-ctx.Done():
		return false
	}
}

// residentSet is a process's memory in bytes; 0 if it cannot be read.
func residentSet(pid string) int64 {
	b, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// A worker is a shard under way.
type worker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	words *bufio.Scanner
}

// start starts a worker and waits until it is ready.
func (j job) start() (*worker, word, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, word{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, word{}, err
	}
	w := &worker{cmd: exec.Command(exe)}
	w.cmd.Env = append(os.Environ(), workerVariable+"="+string(text), "GOMAXPROCS=1")
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent to act on
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, word{}, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, word{}, err
	}
	w.words = bufio.NewScanner(out)
	w.words.Buffer(nil, 1<<20)
	if err := w.cmd.Start(); err != nil {
		return nil, word{}, fmt.Errorf("starting a worker: %w", err)
	}
	said, err := w.next("ready")
	if err != nil {
		w.stop()
		return nil, word{}, err
	}
	return w, said, nil
}

func (w *worker) tell(command string) { _, _ = io.WriteString(w.in, command+"\n") }

// next reads the worker's next word, which has to be of kind event.
func (w *worker) next(event string) (word, error) {
	if !w.words.Scan() {
		return word{}, errors.New("a worker ended before its time")
	}
	var said word
	if err := json.Unmarshal(w.words.Bytes(), &said); err != nil {
		return said, fmt.Errorf("a worker said %q", w.words.Text())
	}
	if said.Event != event {
		return said, errors.New(strings.TrimSpace("a worker failed: " + said.Error))
	}
	return said, nil
}

func (w *worker) stop() {
	w.in.Close()
	_ = w.cmd.Wait()
}

// A Shards are worker processes that serve one spec on one port.
type Shards struct {
	workers []*worker
	Address string
}

// ServeSharded serves a spec in n processes that share its port.
func ServeSharded(s Spec, cfg Config, n int) (*Shards, error) {
	s.Shared = true
	if s.Network == "unix" {
		return nil, errors.New("a Unix socket cannot be shared between processes")
	}
	out := &Shards{}
	for range n {
		w, said, err := job{Serve: &s, Engine: cfg.Engine, OnStall: cfg.OnStall, StallCap: cfg.StallCap}.start()
		if err != nil {
			out.Close()
			return nil, err
		}
		out.workers = append(out.workers, w)
		out.Address = said.Address
		s.Address = said.Address // the first chooses the port where it is 0
	}
	return out, nil
}

// Memory is what the processes use together, in bytes.
func (s *Shards) Memory() int64 {
	var sum int64
	for _, w := range s.workers {
		sum += residentSet(fmt.Sprint(w.cmd.Process.Pid))
	}
	return sum
}

// Close ends the processes.
func (s *Shards) Close() {
	var wg sync.WaitGroup
	for _, w := range s.workers {
		wg.Go(w.stop)
	}
	wg.Wait()
}

// A Held is what holding connections gave.
type Held struct {
	Established, Echoed int
	Failed              map[string]int
	Time, Delay         time.Duration
	EchoTime, CloseTime time.Duration
	Connect             measure.Distribution // the slowest process's
	Memory              float64              // of ours, bytes for each connection
	ListenDrops         uint64               // connections that the kernel turned away, system-wide, meanwhile
}

// HoldAll holds a plan's connections in worker processes: opens them all, waits, uses each once, closes them.
func HoldAll(ctx context.Context, p Plan, o HoldOptions, wait time.Duration, opened func(Held)) (Held, error) {
	var workers []*worker
	defer func() {
		for _, w := range workers {
			w.stop()
		}
	}()
	for _, s := range p.Shares() {
		w, _, err := job{Hold: &o, Share: s}.start()
		if err != nil {
			return Held{}, err
		}
		workers = append(workers, w)
	}
	stop := context.AfterFunc(ctx, func() {
		for _, w := range workers {
			w.in.Close()
		}
	})
	defer stop()
	h := Held{Failed: map[string]int{}}
	drops := listenDrops()
	began := time.Now()
	err := askAll(workers, "open", "opened", func(said word) {
		h.Established += said.Opened
		for cause, n := range said.Failed {
			h.Failed[cause] += n
		}
		if said.Connect.P99 > h.Connect.P99 || h.Connect.Count == 0 {
			h.Connect = said.Connect
		}
		h.Delay = max(h.Delay, said.Delayed)
		h.Memory += float64(said.Memory)
	})
	h.Time, h.ListenDrops = time.Since(began), listenDrops()-drops
	if h.Established > 0 {
		h.Memory /= float64(h.Established)
	}
	if err != nil {
		return h, because(ctx, err)
	}
	if opened != nil {
		opened(h)
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return h, context.Cause(ctx)
	}
	began = time.Now()
	if err := askAll(workers, "echo", "echoed", func(said word) { h.Echoed += said.Echoed }); err != nil {
		return h, because(ctx, err)
	}
	h.EchoTime = time.Since(began)
	began = time.Now()
	for _, w := range workers {
		w.tell("close")
	}
	for _, w := range workers {
		w.stop()
	}
	workers = nil
	h.CloseTime = time.Since(began)
	return h, nil
}

func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// askAll tells all workers at once, then takes their answers.
func askAll(workers []*worker, command, event string, take func(word)) error {
	for _, w := range workers {
		w.tell(command)
	}
	for _, w := range workers {
		said, err := w.next(event)
		if err != nil {
			return err
		}
		take(said)
	}
	return nil
}

// listenDrops reads the kernel's counter of connections that found the accept backlog full.
func listenDrops() uint64 {
	b, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		return 0
	}
	lines := strings.Split(string(b), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for k := range names {
			if names[k] == "ListenDrops" && k < len(values) {
				var n uint64
				_, _ = fmt.Sscan(values[k], &n)
				return n
			}
		}
	}
	return 0
}
