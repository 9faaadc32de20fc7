/*
 * Random calls of librdmacm in one or two threads, on identifiers of a shared table.
 *
 * A thread borrows an identifier for a call, because librdmacm defines no answer for two calls at a
 * time. Events are taken at any time, also while another thread has the identifier. Only the
 * creation and the destruction of queue pairs exclude them. An event leads in most cases to the
 * call that follows it in a program, so that connections are established.
 *
 * Not generated, because librdmacm defines no answer, or waits for ever:
 *
 * - the use of a destroyed identifier, and the destruction of a channel that has identifiers;
 * - the destruction of the identifiers' own context and domain (`id->verbs`, `id->pd`);
 * - the destruction, migration and leaving of a group with events that nobody acknowledges;
 * - calls of synchronous identifiers that wait for a peer.
 */
#ifndef CONNECTIONS_H
#define CONNECTIONS_H

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "addresses.h"

#define IDS	14
#define HELD	32
#define SETS	3
#define GROUPS	4
#define CM_STEPS	3000

struct known {
	struct rdma_cm_id *id;
	int is_borrowed, is_sync;
	/* A thread waits until all events of the identifier are acknowledged. */
	int is_quiet;
	/* The groups that were joined. A queue pair in a group cannot be destroyed. */
	union place groups[GROUPS];
	int joined;
};

struct held {
	struct rdma_cm_event *event;
	struct rdma_cm_id *of;
};

static struct {
	pthread_mutex_t mutex;
	struct known ids[IDS];
	struct held events[HELD];
} cm = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct rdma_event_channel *sets[SETS];
static atomic_ulong established;

/*
 * Held for reading while events are taken. Held for writing while queue pairs of identifiers come and
 * go, and by calls that store into an identifier, as the taking of its event does.
 */
static pthread_rwlock_t queue_pairs = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* Checks the answer of a call that returns -1 with errno. */
static int minus_one(int returned)
{
	if (returned != 0 && returned != -1)
		fault("neither 0 nor -1", returned);
	return answer(returned);
}

static int alone(int returned)
{
	int error = errno;

	pthread_rwlock_unlock(&queue_pairs);
	errno = error;
	return minus_one(returned);
}

#define CM(call) (call_now = #call, errno = 0, minus_one(call))
/* A call that stores into an identifier. */
#define CM_ALONE(call) \
	(pthread_rwlock_wrlock(&queue_pairs), call_now = #call, errno = 0, alone(call))

static struct known *find_locked(const struct rdma_cm_id *id)
{
	for (int i = 0; i < IDS; i++)
		if (id && cm.ids[i].id == id)
			return &cm.ids[i];
	return NULL;
}

/* Borrows this identifier, or any if it is NULL. Returns NULL if it is not free. */
static struct known *borrow(const struct rdma_cm_id *id)
{
	struct known *found;

	pthread_mutex_lock(&cm.mutex);
	found = id ? find_locked(id) : &cm.ids[below(IDS)];
	if (found && (!found->id || found->is_borrowed))
		found = NULL;
	if (found)
		found->is_borrowed = 1;
	pthread_mutex_unlock(&cm.mutex);
	return found;
}

static void give_back(struct known *known)
{
	pthread_mutex_lock(&cm.mutex);
	known->is_borrowed = known->is_quiet = 0;
	pthread_mutex_unlock(&cm.mutex);
}

/* Keeps an identifier, not borrowed. Returns whether there was room. */
static int keep_id(struct rdma_cm_id *id, int is_sync)
{
	int has_room = 0;

	pthread_mutex_lock(&cm.mutex);
	for (int i = 0; i < IDS && !has_room; i++)
		if (!cm.ids[i].id) {
			cm.ids[i] = (struct known){ .id = id, .is_sync = is_sync };
			has_room = 1;
		}
	pthread_mutex_unlock(&cm.mutex);
	return has_room;
}

/* Acknowledges the events of an identifier that is borrowed, and those that still arrive. */
static void quiet(struct known *known)
{
	struct rdma_cm_event *events[HELD];
	int count = 0;

	pthread_mutex_lock(&cm.mutex);
	known->is_quiet = 1;
	for (int i = 0; i < HELD; i++)
		if (cm.events[i].event && cm.events[i].of == known->id) {
			events[count++] = cm.events[i].event;
			cm.events[i].event = NULL;
		}
	pthread_mutex_unlock(&cm.mutex);
	while (count)
		CM(rdma_ack_cm_event(events[--count]));
}

static void drop_queue_pair(struct rdma_cm_id *id)
{
	pthread_rwlock_wrlock(&queue_pairs);
	call_now = "rdma_destroy_qp";
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	pthread_rwlock_unlock(&queue_pairs);
}

static void leave_groups(struct known *known)
{
	quiet(known);
	while (known->joined)
		CM(rdma_leave_multicast(known->id, &known->groups[--known->joined].any));
}

/* Destroys an identifier that nobody else knows. */
static void destroy_unknown(struct rdma_cm_id *id)
{
	drop_queue_pair(id);
	if (CM(rdma_destroy_id(id)))
		fault("cannot destroy an identifier", errno);
}

static void destroy_known(struct known *known)
{
	struct rdma_cm_id *id = known->id;

	leave_groups(known);
	if (id->qp || id->srq)
		drop_queue_pair(id);
	/* The entry stays quiet until the identifier is gone. */
	if (CM(rdma_destroy_id(id)))
		fault("cannot destroy an identifier", errno);
	pthread_mutex_lock(&cm.mutex);
	known->id = NULL;
	pthread_mutex_unlock(&cm.mutex);
	give_back(known);
}

static struct rdma_conn_param *some_param(struct rdma_conn_param *param)
{
	*param = (struct rdma_conn_param){
		.private_data = below(4) ? arena : NULL, .private_data_len = number(255), .responder_resources = number(4),
		.initiator_depth = number(4), .flow_control = number(1), .retry_count = number(7),
		.rnr_retry_count = number(7), .srq = number(1), .qp_num = number(1 << 24),
	};
	/* In most cases one that is accepted. */
	if (below(4))
		*param = (struct rdma_conn_param){ .private_data = arena, .private_data_len = below(30), .responder_resources = 1,
						   .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	return below(12) ? param : NULL;
}

static void make_queue_pair_of(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = below(12) ? (enum ibv_qp_type)id->qp_type : (enum ibv_qp_type)number(10), .sq_sig_all = number(1),
		.cap = { number(16), number(16), number(2), number(2), number(64) },
	};
	struct ibv_qp_init_attr_ex ex = { .qp_type = id->qp_type, .comp_mask = flags(IBV_QP_INIT_ATTR_PD), .cap = init.cap };
	struct ibv_srq_init_attr srq = { .attr = { number(16), number(2), number(2) } };

	pthread_rwlock_wrlock(&queue_pairs);
	if (below(12) == 0 && id->verbs && !id->srq && !id->qp)
		CM(rdma_create_srq(id, NULL, &srq));
	else if (below(12))
		CM(rdma_create_qp(id, NULL, below(30) ? &init : NULL));
	else
		CM(rdma_create_qp_ex(id, below(30) ? &ex : NULL));
	pthread_rwlock_unlock(&queue_pairs);
}

static void set_some_option(struct rdma_cm_id *id)
{
	unsigned char value[256];
	/* A length beyond the value is refused for all options but path records, which have many sizes. */
	int level = below(8) ? RDMA_OPTION_ID : (int)number(2), name = below(8) ? (int)below(4) : (int)number(8);
	size_t length = below(3) ? (name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY ? 4 : 1) : below(256);

	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = below(3) ? below(2) : random_64();
	if (below(20) == 0)
		length = SIZE_MAX - below(1000);
	CM(rdma_set_option(id, level, name, below(20) ? value : NULL, length));
}

static void change_group(struct known *known)
{
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = below(8) ? 3 : number(7), .join_flags = number(1) };
	union place group;
	struct sockaddr *address = some_address(&group);

	if (address && below(4))
		group.v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef010200 | below(4)) };
	attr.addr = address;
	if (below(3) == 0) {
		quiet(known);
		CM(rdma_leave_multicast(known->id, address));
	} else if (known->joined < GROUPS) {
		if (below(2))
			CM(rdma_join_multicast(known->id, address, arena));
		else
			CM(rdma_join_multicast_ex(known->id, below(20) ? &attr : NULL, arena));
		/* Also after an error: a synchronous identifier reports the error of an earlier event. */
		if (address)
			known->groups[known->joined++] = group;
	}
}

static const char *some_name(void)
{
	static const char *const names[] = { "127.0.0.1", "localhost", "::1", "", "no.such.name.invalid", "999.1.1.1" };

	return below(4) ? names[below(6)] : NULL;
}

static const char *some_service(void)
{
	static const char *const services[] = { "7471", "0", "65536", "-1", "", "no such service" };

	return below(4) ? services[below(6)] : NULL;
}

/* Numbers only, because a name may ask a server of the network. */
static struct rdma_addrinfo some_hints(void)
{
	return (struct rdma_addrinfo){
		.ai_flags = (below(8) ? number(15) : number(255)) | RAI_NUMERICHOST, .ai_family = below(2) ? AF_INET : (int)number(40),
		.ai_qp_type = number(10), .ai_port_space = below(2) ? RDMA_PS_TCP : (int)number(1000),
	};
}

/* `RDMA_CM_EVENT_USER` of rdma-core 60. */
#define USER_EVENT	18

typedef int write_event_function(struct rdma_cm_id *, uint32_t, int, uint64_t);
typedef int resolve_function(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *);
typedef int query_function(struct rdma_cm_id *, struct rdma_addrinfo **);

/* Events of the program, and addresses that are resolved with an event (rdma-core 60). */
static void use_newer_calls(struct rdma_cm_id *id)
{
	write_event_function *write_event = FIND(write_event_function, "rdma_write_cm_event", "RDMACM_1.4");
	resolve_function *resolve = FIND(resolve_function, "rdma_resolve_addrinfo", "RDMACM_1.4");
	query_function *query_resolved = FIND(query_function, "rdma_query_addrinfo", "RDMACM_1.4");
	struct rdma_addrinfo hints = some_hints(), *found = NULL;

	switch (below(3)) {
	case 0: CM(write_event(id, below(8) ? USER_EVENT : (uint32_t)number(20), (int)random_64(), random_64())); break;
	case 1: CM_ALONE(resolve(id, some_name(), some_service(), &hints)); break;
	default:
		if (!CM(query_resolved(id, below(20) ? &found : NULL))) {
			if (!found)
				fault("no address", 0);
			rdma_freeaddrinfo(found);
		}
	}
}

static void migrate(struct known *known)
{
	struct rdma_event_channel *to = below(6) ? sets[below(SETS)] : NULL;

	quiet(known);
	if (!CM_ALONE(rdma_migrate_id(known->id, to)))
		known->is_sync = !to;
}

static void read_identifier(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = number(6) };
	struct ibv_ece ece = { number(8), number(8), 0 };
	int mask, count;
	struct ibv_context **devices;

	switch (below(7)) {
	case 0: CM(rdma_init_qp_attr(id, below(20) ? &attr : NULL, below(20) ? &mask : NULL)); break;
	case 1: CM(rdma_set_local_ece(id, below(8) ? &ece : NULL)); break;
	case 2: CM(rdma_get_remote_ece(id, below(8) ? &ece : NULL)); break;
	case 3: calls_made += 2; rdma_get_src_port(id); rdma_get_dst_port(id); break;
	case 4: CM(rdma_notify(id, below(2) ? IBV_EVENT_COMM_EST : (enum ibv_event_type)number(20))); break;
	case 5:
		call_now = "rdma_get_devices";
		devices = rdma_get_devices(below(2) ? &count : NULL);
		MUST(devices);
		rdma_free_devices(devices);
		break;
	default:
		if (!rdma_event_str((enum rdma_cm_event_type)number(20)))
			fault("no name of an event", 0);
	}
}

static struct sockaddr *own_place(union place *to, int port)
{
	memset(to, 0, sizeof(*to));
	to->v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = own_address };
	return &to->any;
}

/* A call on a borrowed identifier. */
static void use(struct known *known)
{
	struct rdma_cm_id *id = known->id;
	struct rdma_conn_param param;
	union place from, to;

	switch (below(25)) {
	case 0: CM_ALONE(rdma_bind_addr(id, some_address(&from))); break;
	case 1:
	case 2:
		CM_ALONE(rdma_resolve_addr(id, below(3) ? NULL : some_address(&from), some_address(&to), (int)number(2000)));
		break;
	case 3: CM(rdma_resolve_route(id, (int)number(2000))); break;
	case 4:
	case 5:
		if (!CM_ALONE(rdma_bind_addr(id, some_address(&from))) || below(8) == 0)
			CM_ALONE(rdma_listen(id, (int)number(8)));
		break;
	case 6: make_queue_pair_of(id); break;
	case 7:
		leave_groups(known);
		drop_queue_pair(id);
		break;
	case 8: set_some_option(id); break;
	case 9:
	case 10: change_group(known); break;
	case 11: migrate(known); break;
	case 12:
	case 13: read_identifier(id); break;
	case 14:
		if (!known->is_sync)
			CM(rdma_connect(id, some_param(&param)));
		break;
	case 15:
		if (!known->is_sync)
			CM(rdma_accept(id, some_param(&param)));
		break;
	case 16:
		if (below(2))
			CM(rdma_reject(id, below(4) ? arena : NULL, number(255)));
		else
			CM(rdma_reject_ece(id, below(4) ? arena : NULL, number(255)));
		break;
	case 17:
		if (!known->is_sync)
			CM(rdma_disconnect(id));
		break;
	case 18: CM(rdma_establish(id)); break;
	case 21: use_newer_calls(id); break;
	/* As programs begin: a listener, or a connection to one. */
	case 19:
	case 20:
		if (!CM_ALONE(rdma_bind_addr(id, own_place(&from, FIRST_PORT + below(2)))))
			CM_ALONE(rdma_listen(id, 4));
		break;
	default: CM_ALONE(rdma_resolve_addr(id, NULL, own_place(&to, FIRST_PORT + below(2)), 2000)); break;
	}
}

/* Makes an identifier with a queue pair by one call. Its requests have data that precede those of the program. */
static void make_endpoint(void)
{
	union place from, to;
	struct sockaddr *source = some_address(&from), *destination = some_address(&to);
	struct rdma_addrinfo info = {
		.ai_flags = below(2) ? RAI_PASSIVE : number(31), .ai_family = AF_INET, .ai_qp_type = below(12) ? IBV_QPT_RC : (int)number(10),
		.ai_port_space = below(12) ? RDMA_PS_TCP : (int)number(1000), .ai_src_addr = source, .ai_dst_addr = destination,
		.ai_src_len = source ? sizeof(from) : 0, .ai_dst_len = destination ? sizeof(to) : 0,
		.ai_connect = below(2) ? arena : NULL, .ai_connect_len = below(6) ? below(100) : SIZE_MAX - below(4096),
	};
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { number(16), number(16), number(2), number(2), number(64) } };
	struct rdma_cm_id *id = NULL;

	if (CM(rdma_create_ep(&id, below(20) ? &info : NULL, NULL, below(2) ? &init : NULL)))
		return;
	if (!id)
		fault("no identifier", 0);
	if (!keep_id(id, 1))
		destroy_unknown(id);
}

static void resolve_names(void)
{
	struct rdma_addrinfo hints = some_hints(), *found = NULL;

	call_now = "rdma_getaddrinfo";
	calls_made++;
	if (!rdma_getaddrinfo(some_name(), some_service(), &hints, &found)) {
		calls_accepted++;
		rdma_freeaddrinfo(found);
	}
}

static void make_id(void)
{
	static const int spaces[] = { RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB };
	struct rdma_event_channel *set = below(8) ? sets[below(SETS)] : NULL;
	struct rdma_cm_id *id = NULL;

	if (CM(rdma_create_id(set, &id, arena, below(20) ? spaces[below(6)] : (int)number(1000))))
		return;
	if (!id)
		fault("no identifier", 0);
	if (!keep_id(id, !set))
		destroy_unknown(id);
}

/* Makes the call that a program makes after an event. */
static void follow(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	struct known *known = borrow(id);
	struct rdma_conn_param param;

	if (!known)
		return;
	if (!known->is_sync)
		switch (type) {
		case RDMA_CM_EVENT_ADDR_RESOLVED: CM(rdma_resolve_route(id, 2000)); break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			make_queue_pair_of(id);
			CM(rdma_connect(id, some_param(&param)));
			break;
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			make_queue_pair_of(id);
			CM(rdma_accept(id, some_param(&param)));
			break;
		case RDMA_CM_EVENT_CONNECT_RESPONSE: CM(rdma_establish(id)); break;
		case RDMA_CM_EVENT_ESTABLISHED:
			established++;
			if (below(2))
				CM(rdma_disconnect(id));
			break;
		default: break;
		}
	give_back(known);
}

/* Takes an event, keeps it or acknowledges it at once, and makes the call that follows it. */
static void take_event(struct rdma_event_channel *set)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *of, *id;
	struct pollfd ready = { set->fd, POLLIN, 0 };
	struct known *known;
	int is_kept = 0;

	/* A peer needs time for its answer. */
	poll(&ready, 1, below(8) ? 0 : 1);
	pthread_rwlock_rdlock(&queue_pairs);
	if (CM(rdma_get_cm_event(set, &event))) {
		pthread_rwlock_unlock(&queue_pairs);
		return;
	}
	pthread_rwlock_unlock(&queue_pairs);
	type = event->event;
	id = event->id;
	of = event->listen_id ? event->listen_id : id;
	/* librdmacm has no name for an event of the program. */
	if ((int)type != USER_EVENT && !strcmp(rdma_event_str(type), "UNKNOWN EVENT"))
		fault("unknown event", type);
	if (event->listen_id && !keep_id(id, 0)) {
		/* The identifier of a request does not wait for the event, which is the listener's. */
		destroy_unknown(id);
		id = NULL;
	}
	pthread_mutex_lock(&cm.mutex);
	known = find_locked(of);
	for (int i = 0; i < HELD && known && !known->is_quiet && !is_kept && below(3) == 0; i++)
		if (!cm.events[i].event) {
			cm.events[i] = (struct held){ event, of };
			is_kept = 1;
		}
	pthread_mutex_unlock(&cm.mutex);
	if (!is_kept)
		CM(rdma_ack_cm_event(event));
	if (id && below(8))
		follow(type, id);
}

static void acknowledge_one(void)
{
	struct rdma_cm_event *event;
	int place = below(HELD);

	pthread_mutex_lock(&cm.mutex);
	event = cm.events[place].event;
	cm.events[place].event = NULL;
	pthread_mutex_unlock(&cm.mutex);
	if (event)
		CM(rdma_ack_cm_event(event));
}

static void cm_step(void)
{
	struct known *known;
	unsigned int dice = below(100);

	step_now++;
	if (dice < 5) {
		make_id();
	} else if (dice < 6) {
		make_endpoint();
	} else if (dice < 7) {
		resolve_names();
	} else if (dice < 55) {
		take_event(sets[below(SETS)]);
	} else if (dice < 62) {
		acknowledge_one();
	} else if ((known = borrow(NULL))) {
		if (dice < 65) {
			destroy_known(known);
		} else {
			use(known);
			give_back(known);
		}
	}
}

static void destroy_all_ids(void)
{
	struct known *known;

	for (int i = 0; i < IDS; i++)
		if (cm.ids[i].id) {
			MUST((known = borrow(cm.ids[i].id)));
			destroy_known(known);
		}
}

static struct rdma_cm_event *expect(struct rdma_event_channel *set, enum rdma_cm_event_type type)
{
	struct pollfd ready = { set->fd, POLLIN, 0 };
	struct rdma_cm_event *event;

	call_now = "verification of connections";
	MUST(poll(&ready, 1, 50000) == 1 && !rdma_get_cm_event(set, &event));
	if (event->event != type)
		fault(rdma_event_str(event->event), event->status);
	return event;
}

/* Verifies that two new identifiers connect and disconnect. */
static void verify_connections(void)
{
	struct rdma_event_channel *set = rdma_create_event_channel(), *of_listener = rdma_create_event_channel();
	/* Each creation stores the completion queues in its attributes. */
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } }, other = init;
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };
	union place to = { .v4 = { .sin_family = AF_INET, .sin_port = htons(FIRST_PORT + PORTS), .sin_addr = own_address } };
	struct rdma_cm_id *listener, *active, *passive;
	struct rdma_cm_event *event;

	MUST(set && of_listener && !rdma_create_id(of_listener, &listener, NULL, RDMA_PS_TCP));
	MUST(!rdma_create_id(set, &active, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(listener, &to.any) && !rdma_listen(listener, 1));
	MUST(!rdma_resolve_addr(active, NULL, &to.any, 2000));
	MUST(!rdma_ack_cm_event(expect(set, RDMA_CM_EVENT_ADDR_RESOLVED)) && !rdma_resolve_route(active, 2000));
	MUST(!rdma_ack_cm_event(expect(set, RDMA_CM_EVENT_ROUTE_RESOLVED)) && !rdma_create_qp(active, NULL, &init));
	MUST(!rdma_connect(active, &param));
	event = expect(of_listener, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	MUST(!rdma_create_qp(passive, NULL, &other) && !rdma_accept(passive, &param) && !rdma_ack_cm_event(event));
	MUST(!rdma_ack_cm_event(expect(set, RDMA_CM_EVENT_ESTABLISHED)));
	MUST(!rdma_ack_cm_event(expect(of_listener, RDMA_CM_EVENT_ESTABLISHED)));
	MUST(!rdma_disconnect(active) && !rdma_ack_cm_event(expect(of_listener, RDMA_CM_EVENT_DISCONNECTED)));
	rdma_destroy_qp(active);
	rdma_destroy_qp(passive);
	MUST(!rdma_destroy_id(passive) && !rdma_destroy_id(active) && !rdma_destroy_id(listener));
	rdma_destroy_event_channel(set);
	rdma_destroy_event_channel(of_listener);
}

static void *cm_thread(void *number_of_thread)
{
	begin_thread((uintptr_t)number_of_thread);
	for (int i = 0; i < CM_STEPS; i++)
		cm_step();
	return NULL;
}

/* A round of `count` threads over an empty table. */
static void run_connections(unsigned int round, unsigned int count)
{
	pthread_t made[2];

	for (int i = 0; i < SETS; i++) {
		MUST((sets[i] = rdma_create_event_channel()));
		MUST(!fcntl(sets[i]->fd, F_SETFL, O_NONBLOCK));
	}
	for (unsigned int i = 0; i < count; i++)
		MUST(!pthread_create(&made[i], NULL, cm_thread, (void *)(uintptr_t)(2 * round + i + 1)));
	for (unsigned int i = 0; i < count; i++)
		MUST(!pthread_join(made[i], NULL));
	destroy_all_ids();
	for (int i = 0; i < SETS; i++)
		rdma_destroy_event_channel(sets[i]);
	verify_connections();
}

#endif
