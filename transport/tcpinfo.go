// The kernel's own view of a TCP connection, as far as it explains a result.
package transport

// TCPInfo is a snapshot of the kernel's TCP_INFO (Linux: include/uapi/linux/tcp.h). Times are in
// nanoseconds, sizes in bytes. Counters grow over the life of the connection.
type TCPInfo struct {
	Retransmits   uint64 `json:"retransmits"`        // segments sent again
	CongestionWnd uint64 `json:"cwnd_bytes"`         // congestion window
	RTT           int64  `json:"rtt_ns"`             // smoothed round trip
	RTTVar        int64  `json:"rttvar_ns"`          // its mean deviation
	MinRTT        int64  `json:"min_rtt_ns"`         // least seen
	MSS           uint32 `json:"mss_bytes"`          // sender's segment size
	PathMTU       uint32 `json:"pmtu_bytes"`         // path MTU
	Reordering    uint32 `json:"reordering"`         // reordering metric, in segments
	PeerWindow    uint64 `json:"peer_window_bytes"`  // window that the peer advertises
	BusyTime      int64  `json:"busy_ns"`            // time with unacknowledged data
	RwndLimited   int64  `json:"rwnd_limited_ns"`    // of it, stopped by the peer's window
	SndbufLimited int64  `json:"sndbuf_limited_ns"`  // of it, stopped by our send buffer
	DeliveryRate  uint64 `json:"delivery_rate_Bps"`  // bytes per second, last estimate
	AppLimited    bool   `json:"app_limited"`        // that estimate was limited by the application
	Congestion    string `json:"congestion_control"` // algorithm in use
	SendBuffer    int    `json:"sndbuf_bytes"`       // SO_SNDBUF as the kernel granted it
	ReceiveBuffer int    `json:"rcvbuf_bytes"`       // SO_RCVBUF as the kernel granted it
}

// MergeTCPInfo takes connections together: what counts is summed, times are the largest.
func MergeTCPInfo(all []TCPInfo) TCPInfo {
	var m TCPInfo
	for i, t := range all {
		if i == 0 {
			m = t
			continue
		}
		m.Retransmits += t.Retransmits
		m.CongestionWnd += t.CongestionWnd
		m.PeerWindow += t.PeerWindow
		m.DeliveryRate += t.DeliveryRate
		m.RTT, m.RTTVar, m.MinRTT = max(m.RTT, t.RTT), max(m.RTTVar, t.RTTVar), min(m.MinRTT, t.MinRTT)
		m.BusyTime = max(m.BusyTime, t.BusyTime)
		m.RwndLimited = max(m.RwndLimited, t.RwndLimited)
		m.SndbufLimited = max(m.SndbufLimited, t.SndbufLimited)
		m.AppLimited = m.AppLimited && t.AppLimited
	}
	return m
}
