package org.apache.kafka.coordinator.share;

import java.lang.reflect.Constructor;

import org.apache.kafka.timeline.SnapshotRegistry;

/** Makes what a shard keeps its state in; the class of its parameter, a log's context, moved in Kafka 4.4. */
final class Registries {
    private Registries() {
    }

    static SnapshotRegistry newRegistry() throws Exception {
        for (Constructor<?> constructor : SnapshotRegistry.class.getConstructors()) {
            if (constructor.getParameterCount() == 1) {
                return (SnapshotRegistry) constructor.newInstance(
                    constructor.getParameterTypes()[0].getConstructor().newInstance());
            }
        }
        throw new IllegalStateException("no constructor of SnapshotRegistry with one parameter");
    }
}
