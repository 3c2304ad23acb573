//go:build linux

// The plan: what a step does, derived from the seed and the step's number.

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"muxperf/protocol"
)

// A place is a listener of the server.
type place string

const (
	mainTCP     place = "tcp"
	mainUnix    place = "unix"
	echoTCP     place = "echo"
	echoUnix    place = "echo-unix"
	discardTCP  place = "discard"
	nowhere     place = ""
	hostileTest       = "hostile"
)

// A step is one client, or one connection that is none.
type step struct {
	number int
	test   string // for the table
	stack  string
	place  place
	target place    // behind a Wisp server
	args   []string // without the address
	ws     bool     // the address has the form ws://
	length time.Duration
	want   want
	fault  fault
	sealed bool // every changed byte must be noticed
}

// want is what the result of a step without a fault has to say.
type want struct {
	up, down bool   // the directions
	bothEnds bool   // both ends have counted
	bytes    uint64 // exactly, each way; 0: any
	verify   bool
	count    uint64 // transactions, exactly; 0: at least one
	hold     int    // connections or streams
}

// slow reports whether a time limit of many seconds has to run out before the step ends.
func (s *step) slow() bool {
	return s.fault.name == faultFreeze || s.test == hostileTest && s.fault.name != hostileScan && s.fault.name != hostileHTTP
}

// plan makes the step of a number.
func plan(seed uint64, number int) *step {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	s := &step{number: number, length: 100 * time.Millisecond * time.Duration(3+r.IntN(18))}
	if r.IntN(10) == 0 {
		s.hostile(r)
		return s
	}
	pick(r, []choice{
		{45, s.flood}, {8, s.perf}, {10, s.rr}, {7, s.crr}, {7, s.open}, {7, s.hold}, {10, s.testee}, {8, s.behindWisp},
	})(r)
	s.breakIt(r)
	return s
}

// A choice is one of several, with its weight.
type choice struct {
	weight int
	do     func(*rand.Rand)
}

func pick(r *rand.Rand, choices []choice) func(*rand.Rand) {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := r.IntN(sum)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c.do
		}
	}
	return nil // the weights add up
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// logUniform is between 1 and most, each power of two as likely as another.
func logUniform(r *rand.Rand, most float64) int64 {
	return int64(math.Exp2(r.Float64() * math.Log2(most)))
}

func (s *step) add(args ...string) { s.args = append(s.args, args...) }

// layers chooses the stack and the way to the server.
func (s *step) layers(r *rand.Rand) {
	security, mux := oneOf(r, "noise", "plaintext"), oneOf(r, "none", "yamux", "wisp")
	s.stack, s.place = security+"+"+mux, oneOf(r, mainTCP, mainTCP, mainUnix)
	s.sealed = security == "noise"
	if s.ws = s.stack == "plaintext+wisp" && s.place == mainTCP && r.IntN(2) == 0; s.ws {
		return
	}
	s.add("--security", security, "--mux", mux)
}

// lasts adds -t, or -n with an exact size up to most bytes.
func (s *step) lasts(r *rand.Rand, most float64) {
	if r.IntN(3) == 0 {
		s.want.bytes = uint64(logUniform(r, most))
		s.add("-n", strconv.FormatUint(s.want.bytes, 10))
		s.length = 2 * time.Second
		return
	}
	s.add("-t", seconds(s.length))
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'g', -1, 64) }

// flood moves payload over our own exchange.
func (s *step) flood(r *rand.Rand) {
	s.test, s.want.bothEnds = "flood", true
	s.layers(r)
	s.lasts(r, 64<<20)
	switch r.IntN(3) {
	case 0:
		s.want.up = true
	case 1:
		s.want.down = true
		s.add("-R")
	case 2:
		s.want.up, s.want.down = true, true
		s.add("--bidir")
	}
	if r.IntN(3) == 0 {
		s.want.verify = true
		s.add("--verify")
		s.sealed = s.sealed || strings.HasSuffix(s.stack, "+none") // elsewhere frames have bytes that nobody checks
	}
	if r.IntN(2) == 0 {
		s.add("-P", strconv.Itoa(oneOf(r, 2, 3, 8, 30)))
	}
	if r.IntN(6) == 0 {
		s.add("--connections", strconv.Itoa(oneOf(r, 2, 4)))
	}
	if r.IntN(4) == 0 {
		s.add("-l", strconv.FormatInt(max(256, logUniform(r, protocol.MaxBlock)), 10))
	}
	if r.IntN(8) == 0 {
		s.add("-b", oneOf(r, "1M", "50M", "1G"))
		if s.want.bytes > 0 { // what 1 Mbit/s moves in two seconds
			s.want.bytes = 0
			s.add("-t", seconds(s.length))
		}
	}
}

// perf moves payload over a protocol without a report of the other end.
func (s *step) perf(r *rand.Rand) {
	s.test = "perf"
	s.layers(r)
	p := oneOf(r, protocol.Perf100, protocol.Perf100, protocol.Perf010, "echo", "discard")
	if s.ws || strings.HasSuffix(s.stack, "+wisp") { // which has no half-close, as perf needs it
		p = oneOf(r, "echo", "discard")
	}
	s.add("--protocol", p)
	s.lasts(r, 16<<20)
	s.want.up, s.want.down = true, p == "echo"
	if p == protocol.Perf100 && r.IntN(2) == 0 {
		s.want.up, s.want.down = false, true
		s.add("-R")
	}
}

// transactions adds what rr, crr and open have in common.
func (s *step) transactions(r *rand.Rand, test string, count int) {
	s.test = test
	s.add("--test", test)
	s.want.count = uint64(1 + r.IntN(count))
	s.add("-n", strconv.FormatUint(s.want.count, 10))
	if r.IntN(2) == 0 {
		s.add("--outstanding", strconv.Itoa(oneOf(r, 2, 8, 32)))
	}
	s.length = 2 * time.Second
}

// sizes adds those of requests and responses, of at most 64 MiB in all: on a slow link that takes 10 s.
func (s *step) sizes(r *rand.Rand, equal bool) {
	if r.IntN(2) == 0 {
		return
	}
	most := min(64<<10, float64(64<<20/s.want.count))
	request, response := logUniform(r, most), logUniform(r, most)
	if equal {
		response = request
	}
	s.add("--request", strconv.FormatInt(request, 10), "--response", strconv.FormatInt(response, 10))
}

func (s *step) rr(r *rand.Rand) {
	s.layers(r)
	s.transactions(r, "rr", 5000)
	if r.IntN(2) == 0 {
		n := oneOf(r, 2, 5)
		s.add("-P", strconv.Itoa(n))
		s.want.count *= uint64(n) // -n is of each stream
	}
	s.sizes(r, false)
}

func (s *step) crr(r *rand.Rand) {
	s.layers(r)
	s.transactions(r, "crr", 200)
	s.sizes(r, false)
}

func (s *step) open(r *rand.Rand) {
	s.layers(r)
	s.transactions(r, "open", 500)
	s.sizes(r, false)
}

func (s *step) hold(r *rand.Rand) {
	s.layers(r)
	s.test, s.want.hold = "hold", 1+r.IntN(30)
	s.add("--test", "hold", "-t", seconds(s.length))
	if r.IntN(2) == 0 {
		s.add("--connections", strconv.Itoa(s.want.hold))
		return
	}
	s.add("--hold-streams", "-P", strconv.Itoa(s.want.hold))
}

// testee uses a bare socket.
func (s *step) testee(r *rand.Rand) {
	s.stack, s.place = "bare", oneOf(r, echoTCP, echoTCP, echoUnix)
	s.add("--no-control")
	switch r.IntN(5) {
	case 0:
		s.transactions(r, "rr", 5000)
		s.sizes(r, true)
	case 1:
		s.transactions(r, "crr", 300)
		s.sizes(r, true)
	case 2:
		s.test, s.want.hold = "hold", 1+r.IntN(200)
		s.add("--test", "hold", "--connections", strconv.Itoa(s.want.hold), "-t", seconds(s.length))
	case 3:
		s.test, s.want.up, s.want.down = "flood", true, true
		s.add("--protocol", "echo")
		s.lasts(r, 16<<20)
	case 4:
		s.test, s.place, s.want.up = "flood", discardTCP, true
		s.add("--protocol", "discard")
		s.lasts(r, 16<<20)
	}
}

// behindWisp uses a testee through the Wisp server.
func (s *step) behindWisp(r *rand.Rand) {
	s.stack, s.place, s.ws, s.target = "plaintext+wisp", mainTCP, true, echoTCP
	if r.IntN(3) == 0 {
		s.add("--wisp-version", oneOf(r, "1", "2"))
	}
	switch r.IntN(4) {
	case 0:
		s.transactions(r, "rr", 2000)
		s.sizes(r, true)
	case 1:
		s.transactions(r, "open", 200)
		s.sizes(r, true)
	case 2:
		s.want.up, s.want.down = true, true
		s.add("--protocol", "echo")
		s.lasts(r, 16<<20)
	case 3:
		s.target, s.want.up = discardTCP, true
		s.lasts(r, 16<<20)
	}
	s.test = "target"
}

// hostile makes a connection that no client makes.
func (s *step) hostile(r *rand.Rand) {
	s.test, s.stack, s.place = hostileTest, "any", oneOf(r, mainTCP, mainTCP, mainUnix)
	s.fault = fault{name: oneOf(r, hostileScan, hostileGarbage, hostileHalf, hostileSilent, hostileHTTP, hostileUpgrade), seed: r.Uint64()}
	if s.fault.name == hostileScan {
		s.place = oneOf(r, mainTCP, mainUnix, echoTCP, echoUnix, discardTCP)
	}
}

// String is what a person reads about a step.
func (s *step) String() string {
	return strings.TrimSpace(fmt.Sprintf("step %d: %s over %s to %s %s, %s", s.number, s.test, s.stack, s.place, s.target, s.fault))
}
