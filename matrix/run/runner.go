// The schedule: build, warm up, repeat in shuffled order, sum up.

package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"muxperf/matrix/cell"
	"muxperf/matrix/peer"
)

const (
	buildTimeout  = 40 * time.Minute
	warmUpSeconds = 0.5
)

// A Runner measures a matrix.
type Runner struct {
	Out      string        // folder of logs
	Seconds  float64       // of a repetition
	Reps     int           //
	Seed     uint64        // of the order
	Timeout  time.Duration // for a client beyond its seconds
	Protocol string        // "" lets each client choose
	RawTCP   float64       // yardstick, bits per second
	Strict   bool          // a peer that does not build is an error, not a row that is missing
	Progress Progress

	peers map[string]*peer.Peer
}

// A Progress is told what goes on.
type Progress interface {
	Building(p *peer.Peer)
	Running(k cell.Key, n, of int, left time.Duration)
	Ran(k cell.Key, r cell.Rep)
	Done()
}

// Prepare looks for toolchains, builds what can be built, and asks each peer for its version. A peer that
// cannot take part says why.
func (m *Runner) Prepare(ctx context.Context, peers []*peer.Peer) error {
	m.peers = map[string]*peer.Peer{}
	for _, p := range peers {
		m.peers[p.Name] = p
		if missing := p.Missing(); len(missing) > 0 {
			p.Unavailable = strings.Join(missing, ", ") + " not found on this machine (install it, or try ./run.sh --install)"
			continue
		}
		if p.Build != "" {
			m.Progress.Building(p)
			if log, err := m.shell(ctx, p, "build", p.Build); err != nil {
				if m.Strict || ctx.Err() != nil {
					return fmt.Errorf("building %s (log: %s): %w", p.Name, log, err)
				}
				p.Unavailable = fmt.Sprintf("it does not build here (log: %s)", log)
				continue
			}
		}
		if p.Version != "" {
			p.Versions = m.version(ctx, p)
		}
	}
	return nil
}

// shell runs a command of a peer, its output into a log.
func (m *Runner) shell(ctx context.Context, p *peer.Peer, what, command string) (log string, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	log = filepath.Join(m.Out, what+"."+p.Name+".log")
	f, err := os.Create(log)
	if err != nil {
		return log, err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Dir, f, f
	cmd.WaitDelay = time.Second
	return log, cmd.Run()
}

// version asks a peer what it is; what it says is shown, and no more.
func (m *Runner) version(ctx context.Context, p *peer.Peer) string {
	log, err := m.shell(ctx, p, "version", p.Version)
	if err != nil {
		return "unknown"
	}
	b, err := os.ReadFile(log)
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return first
}

// Measure runs every cell that has no state yet: one warm-up that is thrown away, then the repetitions, each
// round in an order of its own. It stops early with ctx.
func (m *Runner) Measure(ctx context.Context, cells []*cell.Cell) {
	rng := rand.New(rand.NewPCG(m.Seed, m.Seed))
	var live []*cell.Cell
	for _, c := range cells {
		if c.State == "" {
			live = append(live, c)
		}
	}
	total := len(live) * (m.Reps + 1)
	began, done := time.Now(), 0
	for round := range m.Reps + 1 {
		seconds := m.Seconds
		if round == 0 {
			seconds = min(seconds, warmUpSeconds)
		}
		for _, i := range rng.Perm(len(live)) {
			if ctx.Err() != nil {
				break
			}
			c := live[i]
			m.Progress.Running(c.Key, done+1, total, m.left(began, done, total))
			rep := m.once(ctx, c.Key, round, seconds)
			if ctx.Err() != nil {
				break
			}
			if round > 0 {
				c.Reps = append(c.Reps, rep)
				m.Progress.Ran(c.Key, rep)
			}
			done++
		}
	}
	m.Progress.Done()
	for _, c := range live {
		c.Summarise()
		if c.State == "" {
			c.State, c.Reason = cell.DNF, "the matrix was interrupted"
		}
	}
}

// left estimates the time to go from the time so far.
func (m *Runner) left(began time.Time, done, total int) time.Duration {
	if done == 0 {
		return time.Duration(float64(total) * (m.Seconds + 0.5) * float64(time.Second))
	}
	return time.Since(began) / time.Duration(done) * time.Duration(total-done)
}
