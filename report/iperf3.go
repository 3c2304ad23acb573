// iperf3's JSON, with the keys that its consumers read (pscheduler, iperf3-python, the Prometheus
// exporters): start, intervals, end, and error only if there was one. A stream of the muxer takes the
// place of a socket. What iperf3 has no key for stands under "muxperf".

package report

import (
	"encoding/hex"
	"io"
	"maps"
	"math"
	"net"
	"strconv"
	"time"

	"muxperf/measure"
	"muxperf/transport"
)

type iperf3 struct{ w io.Writer }

func (f *iperf3) Start(*Result) {}
func (f *iperf3) Interval(Live) {}
func (f *iperf3) End(r *Result) { write(f.w, iperf3Document(r), true) }

type object = map[string]any

// iperf3Document builds the whole.
func iperf3Document(r *Result) object {
	up, down := byName(r, "upload"), byName(r, "download")
	first, second := up, down
	if first == nil {
		first, second = down, nil
	}
	doc := object{"start": iperf3Start(r), "intervals": []object{}, "end": object{}, "muxperf": r}
	if first != nil {
		doc["intervals"] = iperf3Intervals(first, second)
		doc["end"] = iperf3End(r, first, second)
	}
	if r.Title != "" {
		doc["title"] = r.Title
	}
	if r.Extra != "" {
		doc["extra_data"] = r.Extra
	}
	if r.Error != nil {
		doc["error"] = r.Error.Error()
	}
	return doc
}

func byName(r *Result, name string) *Direction {
	for i := range r.Directions {
		if r.Directions[i].Name == name {
			return &r.Directions[i]
		}
	}
	return nil
}

// socketOf numbers streams as iperf3 numbers sockets: small integers, from 5 up.
func socketOf(i int) int { return 5 + i }

func iperf3Start(r *Result) object {
	host, port := splitAddress(r.Peer.Address)
	connected := []object{}
	for i := range max(1, r.Params.Connections) * max(1, r.Params.Streams) {
		connected = append(connected, object{"socket": socketOf(i), "local_host": "", "local_port": 0, "remote_host": host, "remote_port": port})
	}
	mss := 0
	if len(r.TCP) > 0 {
		mss = int(r.TCP[0].MSS)
	}
	reverse, bidir := 0, 0
	if byName(r, "upload") == nil && byName(r, "download") != nil {
		reverse = 1
	}
	if len(r.Directions) > 1 {
		bidir = 1
	}
	start := object{
		"connected": connected, "version": r.Tool.Name + " " + r.Tool.Version, "system_info": r.Environment["kernel"],
		"timestamp":       object{"time": r.Started.UTC().Format(time.RFC1123), "timesecs": r.Started.Unix(), "timemillisecs": r.Started.UnixMilli()},
		"cookie":          hex.EncodeToString([]byte(strconv.FormatInt(r.Started.UnixNano(), 36))),
		"tcp_mss_default": mss, "target_bitrate": int64(r.Params.Rate), "fq_rate": 0,
		"sock_bufsize": 0, "sndbuf_actual": sndbuf(r.TCP), "rcvbuf_actual": rcvbuf(r.TCP),
		"test_start": object{"protocol": "TCP", "num_streams": max(1, r.Params.Connections) * max(1, r.Params.Streams),
			"blksize": r.Params.Block, "omit": int(r.Params.Omit.Seconds()), "duration": int(math.Ceil(r.Params.Duration.Seconds())),
			"bytes": r.Params.Bytes, "blocks": 0, "reverse": reverse, "tos": 0, "target_bitrate": int64(r.Params.Rate),
			"bidir": bidir, "fqrate": 0, "interval": r.Params.Interval.Seconds(), "gso": 0, "gro": 0},
	}
	if r.Role == "client" {
		start["connecting_to"] = object{"host": host, "port": port}
	} else {
		start["accepted_connection"] = object{"host": host, "port": port}
	}
	return start
}

func splitAddress(address string) (string, int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ := strconv.Atoi(text)
	return host, port
}

func sndbuf(tcp []transport.TCPInfo) int {
	if len(tcp) == 0 {
		return 0
	}
	return tcp[0].SendBuffer
}

func rcvbuf(tcp []transport.TCPInfo) int {
	if len(tcp) == 0 {
		return 0
	}
	return tcp[0].ReceiveBuffer
}

// span is the fields that every figure has.
func span(start, end time.Duration, bytes uint64, sender bool) object {
	return object{"start": start.Seconds(), "end": end.Seconds(), "seconds": (end - start).Seconds(),
		"bytes": bytes, "bits_per_second": measure.Rate(bytes, end-start), "sender": sender}
}

// withTCP adds the kernel's figures, in iperf3's units (microseconds).
func withTCP(o object, now, before *transport.TCPInfo) object {
	if now == nil {
		return o
	}
	retransmits := now.Retransmits
	if before != nil {
		retransmits -= min(retransmits, before.Retransmits)
	}
	o["retransmits"], o["snd_cwnd"], o["snd_wnd"] = retransmits, now.CongestionWnd, now.PeerWindow
	o["rtt"], o["rttvar"], o["pmtu"], o["reorder"] = now.RTT/1000, now.RTTVar/1000, now.PathMTU, now.Reordering
	return o
}

// own is the side that an end of a direction knows intervals of: ours, as iperf3 has it.
func own(d *Direction) (s *Side, sender bool) {
	if d.Sender != nil && len(d.Sender.Intervals) > 0 || d.Receiver == nil {
		return d.Sender, true
	}
	return d.Receiver, false
}

func iperf3Intervals(first, second *Direction) []object {
	out := []object{}
	s, sender := own(first)
	if s == nil {
		return out
	}
	for i, iv := range s.Intervals {
		sum := span(iv.Start, iv.End, iv.Bytes, sender)
		sum["omitted"] = iv.Omitted
		withTCP(sum, tcpAt(s, i), tcpAt(s, i-1))
		streams := []object{}
		if len(s.Streams) == 1 || len(iv.Streams) > 0 { // otherwise there were too many to keep
			streams = iperf3IntervalStreams(iv, sum, sender)
		}
		entry := object{"streams": streams, "sum": sum}
		if second != nil {
			if s2, sender2 := own(second); s2 != nil && i < len(s2.Intervals) {
				iv2 := s2.Intervals[i]
				reverse := span(iv2.Start, iv2.End, iv2.Bytes, sender2)
				reverse["omitted"] = iv2.Omitted
				entry["sum_bidir_reverse"] = reverse
			}
		}
		out = append(out, entry)
	}
	return out
}

// iperf3IntervalStreams is one entry for each stream; alone, it is the sum. Streams of a muxer share their
// connection's TCP: each has its round trip and its window, and the first has the retransmissions, so that they
// still add up.
func iperf3IntervalStreams(iv measure.Interval, sum object, sender bool) []object {
	if len(iv.Streams) == 0 {
		only := maps.Clone(sum)
		only["socket"] = socketOf(0)
		return []object{only}
	}
	out := make([]object, len(iv.Streams))
	for i, n := range iv.Streams {
		stream := maps.Clone(sum)
		maps.Copy(stream, span(iv.Start, iv.End, n, sender))
		if _, has := sum["retransmits"]; has && i > 0 {
			stream["retransmits"] = uint64(0)
		}
		stream["socket"] = socketOf(i)
		out[i] = stream
	}
	return out
}

func tcpAt(s *Side, i int) *transport.TCPInfo {
	if i < 0 || i >= len(s.TCP) {
		return nil
	}
	return &s.TCP[i]
}

func iperf3End(r *Result, first, second *Direction) object {
	end := object{"streams": []object{}, "cpu_utilization_percent": iperf3CPU(r)}
	streams := []object{}
	for _, d := range []*Direction{first, second} {
		if d != nil {
			streams = append(streams, iperf3Streams(d)...)
		}
	}
	end["streams"] = streams
	for suffix, d := range map[string]*Direction{"": first, "_bidir_reverse": second} {
		if d == nil {
			continue
		}
		end["sum_sent"+suffix] = iperf3Sum(r, d, d.Sender, true)
		end["sum_received"+suffix] = iperf3Sum(r, d, d.Receiver, false)
	}
	if len(r.TCP) > 0 {
		end["sender_tcp_congestion"] = r.TCP[0].Congestion
	}
	if len(r.PeerTCP) > 0 {
		end["receiver_tcp_congestion"] = r.PeerTCP[0].Congestion
	}
	return end
}

// iperf3Sum is a side's total. Where the peer told us nothing, the figures are those that we have, as
// iperf3 does it; "muxperf" says at which end they were measured.
func iperf3Sum(r *Result, d *Direction, s *Side, sender bool) object {
	if s == nil {
		s = d.Headline()
	}
	o := span(0, s.Window, s.Bytes, sender)
	if sender {
		tcp := r.TCP
		if (d.Name == "upload") != (r.Role == "client") { // the other end sent
			tcp = r.PeerTCP
		}
		retransmits := uint64(0)
		for _, t := range tcp {
			retransmits += t.Retransmits
		}
		o["retransmits"] = retransmits
	}
	return o
}

func iperf3Streams(d *Direction) []object {
	head := d.Headline()
	out := make([]object, len(head.Streams))
	for i := range head.Streams {
		entry := object{}
		for name, s := range map[string]*Side{"sender": d.Sender, "receiver": d.Receiver} {
			if s == nil || i >= len(s.Streams) {
				s = head
			}
			o := span(0, s.Window, s.Streams[i].Bytes, name == "sender")
			o["socket"] = socketOf(i)
			if name == "sender" {
				summarise(o, s)
			}
			entry[name] = o
		}
		out[i] = entry
	}
	return out
}

// summarise adds the extremes over the intervals.
func summarise(o object, s *Side) {
	var cwnd, wnd uint64
	var most, sum int64
	least := int64(math.MaxInt64)
	for _, t := range s.TCP {
		cwnd, wnd = max(cwnd, t.CongestionWnd), max(wnd, t.PeerWindow)
		most, least, sum = max(most, t.RTT), min(least, t.RTT), sum+t.RTT
	}
	n := int64(len(s.TCP))
	if n == 0 {
		least, n = 0, 1
	}
	o["retransmits"] = uint64(0)
	if len(s.TCP) > 0 {
		o["retransmits"] = s.TCP[len(s.TCP)-1].Retransmits
	}
	o["max_snd_cwnd"], o["max_snd_wnd"] = cwnd, wnd
	o["max_rtt"], o["min_rtt"], o["mean_rtt"] = most/1000, least/1000, sum/n/1000
}

func iperf3CPU(r *Result) object {
	o := object{}
	for name, c := range map[string]*CPU{"host": r.CPU, "remote": r.PeerCPU} {
		if c == nil {
			c = &CPU{}
		}
		share := func(d time.Duration) float64 {
			if c.Wall <= 0 {
				return 0
			}
			return 100 * d.Seconds() / c.Wall.Seconds()
		}
		o[name+"_total"], o[name+"_user"], o[name+"_system"] = c.Percent, share(c.User), share(c.System)
	}
	return o
}
