/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * group.c: groups of endpoints (fid_mc), and the messages of their operations.
 *
 * fi_join     each member sends every other the number by which it knows the group. A message of the group carries the
 *             number that its receiver chose, so members need not agree on one; these first messages carry a hash of
 *             all members' addresses and of how often this set has been joined. From then on every pair is connected,
 *             so each member sees the death of any other. Then the members meet as in a barrier: a member that has
 *             joined may close its endpoint at once, because every other member has the numbers of all.
 * a message   tag: number of the group at the receiver (32 bits), operation (24), phase (8). In one phase a member has
 *             at most one message for each other member. It is received from that member only.
 * an error    a member is lost, or its message is not the expected one: the group stays broken. A member that notices
 *             tells all others ("alarm"). Every operation of the group ends with the error, once, when none of its
 *             messages is under way. Each member receives and drops the messages that others sent before they knew
 *             ("drain"), or their operations would not end; so the number of a broken group is kept until the endpoint
 *             closes. A join that ends with an error goes on unseen: the member sends 0 in place of its number to those
 *             that do not have it, and alarms the others when their numbers come. So each member learns of the error.
 *
 * Owns the core's endpoint for collectives, its groups and operations. All under the domain's only lock (lock.h). The
 * core checks the messages of others; this file compares their length with the expected one. If a member dies between
 * any two steps the core ends the transfers with it; if this process dies the others' cores do.
 */
#include "coll/coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/param.h"
#include "wait/watcher.h"
#include "wait/wait.h"

#define LAST_STEP 0xffffffffu /* in a tag: the alarm */
#define SEQS 0xffffffu
#define QUEUE_SIZE 1024

/* ---- the second endpoint --------------------------------------------------------------------- */

void shmcma_coll_service(const char *address, char *service)
{
	/* the part after the host */
	snprintf(service, SC_ADDR_SIZE, "collective.%s", address + strlen(SC_ADDR_PREFIX) + 17);
}

void shmcma_group_free(struct shmcma_group *group)
{
	for (uint32_t i = 0; group->coll && i < group->count; i++) /* else the endpoint has freed them */
		if (group->peers[i])
			sc_peer_put(group->peers[i]);
	free(group->addrs);
	free(group);
}

void shmcma_coll_close(struct shmcma_ep *ep)
{
	struct shmcma_coll *coll = ep->coll;

	if (!coll)
		return;
	shmcma_list_remove(ep->domain->colls, coll, next);
	shmcma_watcher_end_locked(coll->ep->domain, &coll->watcher, shmcma_wait_resume_locked);
	sc_ep_destroy(coll->core);
	while (coll->ops) {
		struct shmcma_collop *op = coll->ops;

		coll->ops = op->next;
		shmcma_collop_free(op);
	}
	while (coll->groups) {
		struct shmcma_group *group = coll->groups;

		coll->groups = group->next;
		group->coll = NULL; /* fi_close() frees a group that is not closed yet */
		if (group->closed)
			shmcma_group_free(group);
	}
	sc_comp_ring_fini(&coll->done);
	free(coll->joins);
	free(coll);
	ep->coll = NULL;
}

/* ---- operations ------------------------------------------------------------------------------ */

int shmcma_collop_new(struct shmcma_group *group, void *context, struct shmcma_collop **out)
{
	struct shmcma_cq *cq = group->coll->ep->tx_cq;
	struct shmcma_collop *op;

	if (cq && cq->queue.tail - cq->queue.head >= cq->queue.limit)
		return -FI_EAGAIN;
	op = calloc(1, sizeof(*op));
	if (!op)
		return -FI_ENOMEM;
	op->group = group;
	op->context = context;
	for (int i = 0; i < SHMCMA_COLL_WINDOW; i++) {
		op->sends.window[i] = (struct shmcma_transfer){ .group = group };
		op->recvs.window[i] = op->sends.window[i];
	}
	*out = op;
	return 0;
}

void shmcma_collop_free(struct shmcma_collop *op)
{
	if (op->joining.domain)
		shmcma_eq_join_end(shmcma_ep_eq(op->group->coll->ep), &op->joining);
	free(op->work);
	free(op->temps);
	free(op);
}

static void report_join(const struct shmcma_collop *op)
{
	struct shmcma_group *group = op->group;
	const struct fi_eq_err_entry entry = {
		.fid = &group->mc.fid, .context = op->context, .err = -op->error, .prov_errno = -op->error
	};

	group->joined = !op->error;
	shmcma_eq_join_report(shmcma_ep_eq(group->coll->ep), group->coll, &entry);
}

/* Counts like an atomic of the base kind, to which it maps (fi_collective(3)). */
static void count(const struct shmcma_collop *op)
{
	struct shmcma_cntr *cntr = op->group->coll->ep->cntrs[SC_EVENT_WRITE];

	if (cntr)
		sc_cntr_add(op->error ? &cntr->count.errors : &cntr->count.value, 1);
}

static void report(const struct shmcma_collop *op)
{
	struct shmcma_cq *cq = op->group->coll->ep->tx_cq;
	const struct sc_comp comp = { .context = op->context,
				      .cq_flags = FI_COLLECTIVE,
				      .err = -op->error };

	if (op->joins) {
		report_join(op);
		return;
	}
	count(op);
	if (cq && (op->error || !op->silent))
		sc_comp_ring_put_slow(&cq->queue, &comp);
}

/* Tells the application of the end, once. */
static void settle(struct shmcma_collop *op)
{
	if (op->settled)
		return;
	op->settled = true;
	op->group->busy--;
	report(op);
}

static void end(struct shmcma_collop *op)
{
	shmcma_list_remove(op->group->coll->ops, op, next);
	settle(op);
	shmcma_collop_free(op);
}

static bool reduces(const struct shmcma_phase *phase)
{
	return phase->reduce || phase->pattern == SHMCMA_UP;
}

static struct iovec out_block(const struct shmcma_collop *op, uint32_t peer)
{
	const struct shmcma_phase *phase = &op->phases[op->at];

	return shmcma_block(op, phase->pattern == SHMCMA_SPREAD ? &phase->out : &phase->in, peer);
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint64_t step_of(const struct shmcma_collop *op)
{
	return (uint64_t)op->seq << 8 | (uint64_t)op->at;
}

/* Do the members tell each other their numbers? */
static bool is_introducing(const struct shmcma_collop *op)
{
	return op->joins && op->at == 0;
}

static uint64_t tag_to(const struct shmcma_collop *op, uint32_t peer)
{
	return is_introducing(op) ? op->group->joint : (uint64_t)op->group->ids[peer] << 32 | step_of(op);
}

static uint64_t tag_here(const struct shmcma_collop *op)
{
	return is_introducing(op) ? op->group->joint : (uint64_t)op->group->id << 32 | step_of(op);
}

static int send_block(struct shmcma_collop *op, struct shmcma_transfer *transfer, uint32_t peer)
{
	struct iovec iov = out_block(op, peer);
	bool small = iov.iov_len <= SC_INJECT_MAX;
	const struct sc_send send = { .iov = &iov,
				      .iov_count = 1,
				      .tag = tag_to(op, peer),
				      .context = small ? NULL : transfer,
				      .flags = SC_TAGGED | (small ? SC_SEND_INJECT | SC_SILENT : 0) };
	int ret = sc_tx_send(op->group->coll->core, op->group->peers[peer], &send);

	if (!ret)
		transfer->state = small ? SHMCMA_DONE : SHMCMA_BUSY;
	return ret;
}

static int recv_block(struct shmcma_collop *op, struct shmcma_transfer *transfer, uint32_t peer)
{
	const struct shmcma_phase *phase = &op->phases[op->at];
	struct iovec iov = shmcma_block(op, &phase->in, reduces(phase) ? op->group->rank : peer);
	struct sc_recv recv = { .iov = &iov,
				.iov_count = 1,
				.source = op->group->peers[peer],
				.tag = tag_here(op),
				.context = transfer,
				.flags = SC_TAGGED };
	int ret;

	transfer->size = iov.iov_len;
	if (reduces(phase))
		iov.iov_base = transfer->temp;
	transfer->state = SHMCMA_BUSY; /* it may complete in the call; the completion is read later */
	ret = sc_rx_recv(op->group->coll->core, &recv);
	if (ret)
		transfer->state = SHMCMA_IDLE;
	return ret;
}

/* ---- a group that is broken ------------------------------------------------------------------ */

static void cancel(struct shmcma_transfer *transfer)
{
	if (transfer->state == SHMCMA_BUSY)
		(void)sc_rx_cancel(transfer->group->coll->core,
				   transfer); /* if matched already, it ends by itself */
}

static void fail(struct shmcma_collop *op, int error)
{
	if (op->error)
		return;
	op->error = error;
	if (is_introducing(op)) {
		static const uint32_t no_number;

		op->phases[0].out.base = (char *)&no_number;
		settle(op);
		return;
	}
	for (int i = 0; i < SHMCMA_COLL_WINDOW; i++)
		cancel(&op->recvs.window[i]);
}

/* Posts a receive without buffer for messages with the group's number and a step within `any`. */
static void stand(struct shmcma_transfer *transfer, uint32_t any)
{
	const struct sc_recv recv = { .tag = (uint64_t)transfer->group->id << 32 | (LAST_STEP & ~any),
				      .ignore = any,
				      .context = transfer,
				      .flags = SC_TAGGED };

	transfer->state = SHMCMA_BUSY;
	if (sc_rx_recv(transfer->group->coll->core, &recv))
		transfer->state = SHMCMA_IDLE; /* no memory now: try again later */
}

/* `peer`: the rank of the member, SHMCMA_ALL: unknown. `error`: of the core. */
static void break_group(struct shmcma_group *group, uint32_t peer, int error)
{
	char member[SC_ADDR_SIZE + 32] = "as another one says, a member";

	if (group->error)
		return;
	group->error = shmcma_error(error);
	if (peer != SHMCMA_ALL)
		snprintf(member, sizeof(member), "member %s (rank %u)",
			 sc_peer_address(group->peers[peer]), peer);
	shmcma_warn(FI_LOG_EP_DATA,
		    "group of %u members: %s is lost or does not fit: %s; close the group on all members "
		    "and join a new one\n",
		    group->count, member, fi_strerror(-group->error));
	for (struct shmcma_collop *op = group->coll->ops; op; op = op->next)
		if (op->group == group)
			fail(op, group->error);
	cancel(&group->alarm);
}

/*
 * The time between two tries of a broken group to send or receive a message, in nanoseconds. A try may write a line to the
 * log.
 */
#define AGAIN_NS 500000000

static void try_later(struct shmcma_coll *coll)
{
	coll->again_at = sc_clock_ns() + AGAIN_NS;
}

/* Tells whether it is time to try again. If so, those that fail call try_later() once more. */
static bool take_due(struct shmcma_coll *coll)
{
	if (coll->again_at && sc_clock_ns() < coll->again_at)
		return false;
	coll->again_at = 0;
	return true;
}

/*
 * Tells one member of the error, if its number is known. False: not now, as its ring is full, or memory or descriptors
 * are short. A member that is full cannot be connected to: the end of its own connection to this endpoint tells it.
 */
static bool alarm_member(struct shmcma_group *group, uint32_t rank)
{
	const struct sc_send send = { .tag = (uint64_t)group->ids[rank] << 32 | LAST_STEP,
				      .flags = SC_TAGGED | SC_SEND_INJECT | SC_SILENT };
	struct sc_peer *peer = group->peers[rank];
	int ret;

	if (rank == group->rank || !group->ids[rank])
		return true;
	ret = sc_tx_send(group->coll->core, peer, &send);
	if (ret && !sc_peer_error(peer) && (ret != -EUSERS || sc_peer_can_answer(peer))) {
		try_later(group->coll);
		return false;
	}
	group->ids[rank] = 0;
	return true;
}

/* Tells each other member, once, if that is due, and receives the messages of all. */
static void attend_broken(struct shmcma_group *group, bool due)
{
	uint32_t next = group->count;

	if (group->drain.state == SHMCMA_IDLE)
		stand(&group->drain, LAST_STEP);
	if (!due)
		return;
	for (uint32_t rank = group->count; rank-- > group->next_notified;)
		if (!alarm_member(group, rank))
			next = rank;
	group->next_notified = next;
}

/* ---- what has come --------------------------------------------------------------------------- */

static void standing_over(struct shmcma_transfer *transfer, const struct sc_comp *comp)
{
	struct shmcma_group *group = transfer->group;

	transfer->state = SHMCMA_IDLE;
	if (transfer == &group->alarm && comp->err != ECANCELED)
		break_group(group, SHMCMA_ALL, -ECONNRESET);
}

static void transfer_over(struct shmcma_transfer *transfer, const struct sc_comp *comp)
{
	struct shmcma_group *group = transfer->group;
	int error = -comp->err;

	if (!error && comp->flags & SC_COMP_RECV && comp->len != transfer->size)
		error = -EMSGSIZE; /* the members do not agree on the size */
	if (error == -EMSGSIZE)
		shmcma_warn(FI_LOG_EP_DATA,
			    "group: this member expects %zu bytes from rank %u and got %zu; all members "
			    "must use the same count\n",
			    transfer->size, transfer->peer, comp->len + (comp->err ? comp->olen : 0));
	transfer->state = SHMCMA_DONE;
	if (!error && !group->ids[transfer->peer])
		error = -ECONNRESET; /* the group is broken at that member, which has sent no number */
	if (error && error != -ECANCELED)
		break_group(group, transfer->peer, error);
	/* of a broken group: the number of the peer may be new */
	if (transfer->peer < group->next_notified)
		group->next_notified = transfer->peer;
}

static void take_completions(struct shmcma_coll *coll)
{
	struct sc_comp *comp;

	while ((comp = sc_comp_ring_peek(&coll->done))) {
		struct shmcma_transfer *transfer = comp->context;
		const struct sc_comp copy = *comp;

		sc_comp_ring_release(&coll->done);
		if (!transfer)
			continue; /* injected; a member that does not get it learns that its peer is lost */
		if (transfer->standing)
			standing_over(transfer, &copy);
		else
			transfer_over(transfer, &copy);
	}
}

/* A join waits also for members that find a lost one gone, and so never join; no message is under way with the lost one. */
static void look_for_lost(struct shmcma_collop *op)
{
	for (size_t step = 0; is_introducing(op) && !op->error && step < op->sends.begun; step++) {
		uint32_t peer = shmcma_pattern_send_peer(op, step);
		int error = sc_peer_error(op->group->peers[peer]);

		if (error)
			break_group(op->group, peer, error);
	}
}

/* ---- one step after the other ---------------------------------------------------------------- */

static void apply(struct shmcma_collop *op, struct shmcma_transfer *transfer)
{
	const struct shmcma_phase *phase = &op->phases[op->at];
	struct iovec target;

	if (!reduces(phase) || !transfer->size)
		return;
	target = shmcma_block(op, &phase->in, op->group->rank);
	(void)sc_atomic_reduce(op->type, op->code, target.iov_base, transfer->temp,
			       target.iov_len / op->element);
}

/* Begins messages of one direction, as many as may be under way. False: the group is broken. */
static bool begin(struct shmcma_collop *op, struct shmcma_way *way)
{
	bool sends = way == &op->sends;

	while (way->begun < way->count && way->begun < way->over + SHMCMA_COLL_WINDOW &&
	       (!sends || shmcma_pattern_may_send(op, way->begun))) {
		struct shmcma_transfer *transfer = &way->window[way->begun % SHMCMA_COLL_WINDOW];
		uint32_t peer = sends ? shmcma_pattern_send_peer(op, way->begun)
				      : shmcma_pattern_recv_peer(op, way->begun);
		int ret = 0;

		transfer->size = 0;
		transfer->peer = peer;
		if (peer == SHMCMA_ALL)
			transfer->state = SHMCMA_DONE;
		else
			ret = sends ? send_block(op, transfer, peer) : recv_block(op, transfer, peer);
		if (ret && ret != -EAGAIN) {
			break_group(op->group, peer, ret);
			if (!is_introducing(op))
				return false;
		}
		if (ret == -EAGAIN || (ret && !sends && !sc_peer_error(op->group->peers[peer]))) {
			if (op->settled)
				try_later(op->group->coll);
			return true;
		}
		if (ret)
			transfer->state = SHMCMA_DONE;
		op->group->coll->begun = true;
		way->begun++;
	}
	return true;
}

/* Returns whether a message has ended: there may be more to begin. */
static bool count_over(struct shmcma_collop *op, struct shmcma_way *way)
{
	size_t before = way->over;

	while (way->over < way->begun) {
		struct shmcma_transfer *transfer = &way->window[way->over % SHMCMA_COLL_WINDOW];

		if (transfer->state != SHMCMA_DONE)
			break;
		if (way == &op->recvs)
			apply(op, transfer);
		transfer->state = SHMCMA_IDLE;
		way->over++;
	}
	return way->over > before;
}

/* Copies the member's own block to its place at once. */
static void begin_phase(struct shmcma_collop *op)
{
	const struct shmcma_phase *phase = &op->phases[op->at];
	uint32_t rank = op->group->rank;
	struct iovec in = shmcma_block(op, &phase->in, rank), out = shmcma_block(op, &phase->out, rank);

	if (phase->own && in.iov_len)
		memmove(in.iov_base, phase->own, in.iov_len);
	if (phase->pattern == SHMCMA_SPREAD && !phase->reduce && out.iov_len && in.iov_len &&
	    (phase->to == SHMCMA_ALL || phase->to == rank) &&
	    (phase->from == SHMCMA_ALL || phase->from == rank))
		memmove(in.iov_base, out.iov_base, in.iov_len);
	shmcma_pattern_count_steps(op);
	op->sends.begun = op->sends.over = op->recvs.begun = op->recvs.over = 0;
}

static bool is_busy(const struct shmcma_collop *op)
{
	for (int i = 0; i < SHMCMA_COLL_WINDOW; i++)
		if (op->sends.window[i].state == SHMCMA_BUSY || op->recvs.window[i].state == SHMCMA_BUSY)
			return true;
	return false;
}

/* Advances the operation as far as possible now. */
static void advance(struct shmcma_collop *op)
{
	while ((!op->error || is_introducing(op)) && op->at < op->phase_count) {
		bool received;

		if (!begin(op, &op->recvs) || !begin(op, &op->sends))
			break;
		received = count_over(op, &op->recvs);
		if (count_over(op, &op->sends) || received)
			continue;
		if (op->recvs.over < op->recvs.count || op->sends.over < op->sends.count)
			return;
		if (++op->at < op->phase_count)
			begin_phase(op);
	}
	if (!is_busy(op))
		end(op);
}

void shmcma_collop_begin(struct shmcma_collop *op)
{
	shmcma_list_append(op->group->coll->ops, op, next);
	op->seq = op->group->seq;
	op->group->seq = (op->group->seq + 1) % SEQS;
	op->group->busy++;
	begin_phase(op);
	take_completions(op->group->coll);
	advance(op);
}

static int coll_progress(struct shmcma_coll *coll)
{
	struct shmcma_collop *next;
	bool due = take_due(coll);
	int done;

	coll->begun = false;
	/* a refused message is sent again below, or refused again */
	coll->refusals = sc_ep_refusals(coll->core);
	done = sc_ep_poll(coll->core);
	for (struct shmcma_collop *op = coll->ops; op; op = op->next)
		look_for_lost(op);
	take_completions(coll);
	for (struct shmcma_collop *op = coll->ops; op; op = next) {
		next = op->next;
		if (!op->settled || due)
			advance(op);
	}
	for (struct shmcma_group *group = coll->groups; group; group = group->next) {
		if (group->error)
			attend_broken(group, due);
		else if (!group->closed && group->alarm.state == SHMCMA_IDLE)
			stand(&group->alarm, 0);
	}
	return done;
}

int shmcma_coll_open(struct shmcma_ep *ep)
{
	struct shmcma_coll *coll = calloc(1, sizeof(*coll));
	char service[SC_ADDR_SIZE];
	struct sc_ep_attr attr = { .config = shmcma_env.config, .service = service };
	int ret = coll ? sc_comp_ring_init(&coll->done, QUEUE_SIZE) : -ENOMEM;

	if (ret) {
		free(coll);
		return shmcma_error(ret);
	}
	shmcma_coll_service(sc_ep_address(ep->core), service);
	attr.tx_cq = &coll->done;
	attr.rx_cq = &coll->done;
	attr.tx_size = ep->tx_size;
	attr.rx_size = ep->rx_size;
	ret = sc_ep_create(&attr, &coll->core);
	if (ret) {
		shmcma_warn(FI_LOG_EP_CTRL, "cannot enable the endpoint's collectives: %s\n",
			    fi_strerror(-ret));
		sc_comp_ring_fini(&coll->done);
		free(coll);
		return shmcma_error(ret);
	}
	shmcma_lock_merge_all_locked(ep->domain);
	coll->ep = ep;
	coll->progress = coll_progress;
	ep->coll = coll;
	coll->next = ep->domain->colls;
	ep->domain->colls = coll;
	return 0;
}

void shmcma_group_add(struct shmcma_group *group)
{
	group->next = group->coll->groups;
	group->coll->groups = group;
	stand(&group->alarm, 0);
}

void shmcma_group_leave(struct shmcma_group *group)
{
	group->closed = true;
	if (group->error)
		return;
	cancel(&group->alarm);
	take_completions(group->coll);
	/* an alarm that is coming, in parts or already here: the endpoint frees the group */
	if (group->error || group->alarm.state != SHMCMA_IDLE)
		return;
	shmcma_list_remove(group->coll->groups, group, next);
	shmcma_group_free(group);
}
